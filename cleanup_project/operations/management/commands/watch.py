"""`manage.py watch`: one round of watching, from outside of the queue."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from cleanup_project.operations.watch import judging, telling


class Command(BaseCommand):
    help = (
        "Compare what waits with its deadlines, raise and end alarms, and tell of them by event and e-mail. Workers do this "
        "every minute; a schedule of your own tells you as well when no worker runs."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        found = {"overdue": judging.judge(), "announced": telling.announce(), "mailed": telling.mail()}
        if options["json"]:
            self.stdout.write(json.dumps(found))
        else:
            self.stdout.write(", ".join(f"{name} {number}" for name, number in found.items()))
