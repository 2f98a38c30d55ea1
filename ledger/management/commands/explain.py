"""`manage.py explain KEY`: the six answers about a command, and its story."""

import json
import shutil
import textwrap
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from cleanup_project.base import display
from cleanup_project.base.canonical import instant
from ledger.exceptions import Unknown
from ledger.explain import Explanation, explain
from ledger.next_action import Turn
from ledger.telling import answers

MAX_WIDTH = 110


class Command(BaseCommand):
    help = "Answer from the record: what was selected and why, was it destroyed, who was told, and whose is the next action."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("key", help="A command key, an event id (evt_…), or the key of a frozen item.")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            told = explain(options["key"])
        except Unknown as unknown:
            raise CommandError(str(unknown)) from unknown
        if options["json"]:
            self.stdout.write(json.dumps(told.as_json()))
        else:
            self.write(told)

    def write(self, told: Explanation) -> None:
        cycle = f", cycle {told.cycle}" if told.cycle else ""
        self.stdout.write(f"{self.style.MIGRATE_HEADING(display.visible(told.key))}\n{told.state}{cycle}\n")
        for number, (question, sentences) in enumerate(answers(told), 1):
            self.stdout.write(f"\n{self.style.MIGRATE_HEADING(f'{number}  {question}')}")
            for sentence in sentences:
                self.stdout.write(self.coloured(wrapped(sentence, "   "), told, number))
        self.stdout.write(f"\n{self.style.MIGRATE_HEADING('Story')}")
        for moment in told.story:
            who = f" [{moment.who}]" if moment.who else ""
            self.stdout.write(wrapped(f"{instant(moment.at)}  {display.visible(moment.what)}{who}", "   ", " " * 32))

    def coloured(self, text: str, told: Explanation, number: int) -> str:
        waits = number == 6 and told.next.turn is Turn.PERSON
        return self.style.WARNING(text) if waits else text


def wrapped(text: str, indent: str, rest: str = "     ") -> str:
    """Folded at blanks only: a key or a digest stays in one piece, to be copied."""
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
    return textwrap.fill(
        text, width, initial_indent=indent, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
