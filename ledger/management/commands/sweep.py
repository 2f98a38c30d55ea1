"""`manage.py sweep`: one round of the sweep, from outside of the queue."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from ledger.sweep import sweep


class Command(BaseCommand):
    help = (
        "Ring again for whatever waits: due commands, expired leases, unpublished parts, lost notices, ended runs. "
        "Workers do this every minute; a second schedule of your own keeps it going where their queue hangs."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        found = sweep()
        if options["json"]:
            self.stdout.write(json.dumps(found))
        else:
            told = ", ".join(f"{name.replace('_', ' ')} {number}" for name, number in found.items() if number)
            self.stdout.write(told or "Nothing waits.")
