"""`manage.py dispatch`: send the webhooks that are due, in the foreground."""

import json
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from tqdm import tqdm

from webhooks import dispatch
from webhooks.limits import BUDGET, SEND


class Command(BaseCommand):
    help = "Send the webhooks that are due, once: until none is left, or until the budget is used up."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--budget", type=int, default=BUDGET, metavar="SECONDS", help=f"Default: {BUDGET}.")
        parser.add_argument("--json", action="store_true", help="Print one JSON object.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["budget"] < SEND:
            raise CommandError(f"One attempt may take {SEND} seconds: give --budget at least as many.")
        with tqdm(unit=" attempts", disable=None, desc="dispatch") as bar:
            done = asdict(dispatch.dispatch(budget_seconds=options["budget"], progress=bar.update))
        self.stdout.write(
            json.dumps(done) if options["json"] else "\n".join(f"{name:10} {count}" for name, count in done.items())
        )
