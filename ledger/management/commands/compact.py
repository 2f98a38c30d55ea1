"""`manage.py compact`: turn the details of commands that are long done into summaries."""

import json
import sys
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from tqdm import tqdm

from ledger import compact
from ledger.exceptions import LedgerError


class Command(BaseCommand):
    help = (
        "Turn targets, requests and attempts of commands that were notified long ago into one summary each. Receipts stay, "
        "and explain answers as before."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        days = compact.KEPT_FOR.days
        parser.add_argument("--older-than", type=int, default=days, metavar="DAYS", help=f"Default {days}.")
        parser.add_argument(
            "--forget-locators", type=int, metavar="DAYS", help="Also forget the clear names behind receipts that old."
        )
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        done = {"compacted": 0, "locators_forgotten": 0}
        try:
            with tqdm(unit=" commands", disable=not sys.stderr.isatty() or options["json"]) as bar:
                while number := compact.compact(older_than=timedelta(days=options["older_than"])):
                    done["compacted"] += number
                    bar.update(number)
            if options["forget_locators"] is not None:
                age = timedelta(days=options["forget_locators"])
                done["locators_forgotten"] = compact.forget_locators(older_than=age)
        except (LedgerError, OverflowError) as refusal:
            raise CommandError(str(refusal)) from refusal
        if options["json"]:
            self.stdout.write(json.dumps(done))
        else:
            self.stdout.write(
                f"{done['compacted']:,} commands compacted; locators of {done['locators_forgotten']:,} receipts forgotten."
            )
