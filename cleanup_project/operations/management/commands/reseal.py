"""`manage.py reseal`: seal secrets anew under the first of `ENCRYPTION_KEYS`."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from cleanup_project.operations import resealing


class Command(BaseCommand):
    help = (
        "Seal anew, under the first of ENCRYPTION_KEYS, every secret that an older key sealed: signing secrets of endpoints, "
        "salts of tenants, second factors. All or nothing; run again, it changes nothing. Run it as the owner of the tables, "
        "when every process has the new key in front, and take the old ones away afterwards."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print one JSON object.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            done = resealing.reseal()
        except resealing.ResealRefused as refusal:
            raise CommandError(str(refusal)) from refusal
        if options["json"]:
            self.stdout.write(json.dumps(done))
            return
        told = ", ".join(f"{number:,} {kind}" for kind, number in done.items())
        self.stdout.write(f"Sealed anew: {told}. The first of ENCRYPTION_KEYS opens everything now.")
