"""`manage.py reseal`: seal secrets anew under the first of `ENCRYPTION_KEYS`."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from cleanup_project.base import vault
from cleanup_project.operations import resealing


class Command(BaseCommand):
    help = (
        "Seal anew, under the first of ENCRYPTION_KEYS, every secret that an older key sealed: signing secrets of endpoints, "
        "salts of tenants, second factors. All or nothing; run again, it changes nothing. Run it as the owner of the tables, "
        "with the same ENCRYPTION_KEYS as every other process; docs/runbook.md says in which order keys are changed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print one JSON object.")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            done = resealing.reseal()
        except resealing.ResealRefused as refusal:
            raise CommandError(str(refusal)) from refusal
        if options["json"]:
            self.stdout.write(json.dumps(done | {"key": vault.fingerprint()}))
            return
        told = ", ".join(f"{number:,} {kind}" for kind, number in done.items())
        self.stdout.write(
            f"Sealed anew: {told}. The key with the fingerprint {vault.fingerprint()} opens everything now. Before others "
            "are taken away: see that manage.py doctor shows the same one for web and workers."
        )
