"""`manage.py dictionary`: the data dictionary, made from the models."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from cleanup_project.operations.dictionary.page import page


class Command(BaseCommand):
    help = "Print the data dictionary; --write puts it into docs/data-dictionary.md, --check fails where that is out of date."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--write", action="store_true")
        parser.add_argument("--check", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        path = Path(settings.BASE_DIR) / "docs" / "data-dictionary.md"
        try:
            text = page()
        except (LookupError, TypeError) as error:
            raise CommandError(str(error)) from error
        if options["write"]:
            path.write_text(text, encoding="utf-8")
        elif options["check"]:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                raise CommandError("docs/data-dictionary.md is out of date: run manage.py dictionary --write.")
        else:
            self.stdout.write(text)
