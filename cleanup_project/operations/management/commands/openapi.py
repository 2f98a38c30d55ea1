"""`manage.py openapi`: the description of the API, as committed in docs/openapi.json."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from cleanup_project.operations.api import site


class Command(BaseCommand):
    help = "Print the OpenAPI description of the API; --write writes docs/openapi.json, --check compares it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--write", action="store_true")
        parser.add_argument("--check", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        path = Path(settings.BASE_DIR) / "docs" / "openapi.json"
        if options["write"]:
            path.write_text(site.openapi(), encoding="utf-8")
        elif options["check"]:
            if not path.exists() or path.read_text(encoding="utf-8") != site.openapi():
                raise CommandError("docs/openapi.json is out of date. Run manage.py openapi --write.")
        else:
            self.stdout.write(site.openapi(), ending="")
