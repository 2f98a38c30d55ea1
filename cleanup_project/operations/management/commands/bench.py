"""`manage.py bench NAME`: measure one promise against a baseline in the same run."""

import json
import logging
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from cleanup_project.operations.bench import (
    dashboard,
    drain,
    export,
    freeze,
    hold,
    ledger,
    pages,
    preview,
    sync,
    webhooks,
)


class Command(BaseCommand):
    help = "Measure one promise as a ratio to a named baseline, in a scratch database of the same server."

    def add_arguments(self, parser: CommandParser) -> None:
        names = parser.add_subparsers(dest="name", required=True)
        frozen = names.add_parser("freeze", help="Freezing a manifest of 80,000 items out of N catalogued versions.")
        frozen.add_argument("--rows", type=int, default=10_000_000, help="Catalogued originals, default 10,000,000.")
        synced = names.add_parser("sync", help="Recording a bucket's listing, against listing it.")
        synced.add_argument("--versions", type=int, default=5000, help="Versions in the bucket, default 5,000.")
        drained = names.add_parser("ledger", help="From claim to receipt, against plain batched SQL.")
        drained.add_argument("--commands", type=int, default=20_000, help="Commands of a side's round, default 20,000.")
        drained.add_argument("--rounds", type=int, default=3, help="Rounds of both, default 3.")
        emptied = names.add_parser("drain", help="Emptying a bucket of a real server, against s5cmd and others.")
        emptied.add_argument("--objects", type=int, default=16_000, help="Objects for each contender, default 16,000.")
        placed = names.add_parser("hold", help="Placing a hold over N objects, and a drain beside it.")
        placed.add_argument("--objects", type=int, default=1_000_000, help="Objects covered, default 1,000,000.")
        placed.add_argument("--commands", type=int, default=50_000, help="Commands that wait, default 50,000.")
        previewed = names.add_parser("preview", help="A draft's impact, estimated and exact, against a plain count.")
        previewed.add_argument("--rows", type=int, default=1_000_000, help="Catalogued originals, default 1,000,000.")
        sent = names.add_parser("webhooks", help="From due to delivered, against bare requests.")
        sent.add_argument("--deliveries", type=int, default=5000, help="Deliveries of a round, default 5,000.")
        sent.add_argument("--rounds", type=int, default=5, help="Rounds of both, default 5.")
        shown = names.add_parser("pages", help="The server's time for every page, against the same over a small world.")
        shown.add_argument("--receipts", type=int, default=10_000_000, help="Receipts, default 10,000,000.")
        shown.add_argument("--looks", type=int, default=5, help="Looks at each page, default 5.")
        exported = names.add_parser("export", help="Receipts through the export page, against psql.")
        exported.add_argument("--rows", type=int, default=1_000_000, help="Receipts, default 1,000,000.")
        looked = names.add_parser("dashboard", help="The dashboard over large tables, against an empty database.")
        looked.add_argument(
            "--commands", type=int, default=1_000_000, help="Commands and deliveries, default 1,000,000."
        )
        looked.add_argument("--receipts", type=int, default=1_000_000, help="Receipts, default 1,000,000.")
        looked.add_argument("--looks", type=int, default=15, help="Looks at each fragment and page, default 15.")
        for each in names.choices.values():
            each.add_argument("--json", action="store_true", help="Print one JSON object.")

    def handle(self, *args: Any, **options: Any) -> None:
        for name in ("", "werkzeug"):
            logging.getLogger(name).setLevel(logging.WARNING)
        measure = {
            "export": lambda: export.run(rows=options["rows"]),
            "dashboard": lambda: dashboard.run(
                commands=options["commands"], receipts=options["receipts"], looks=options["looks"]
            ),
            "freeze": lambda: freeze.run(rows=options["rows"]),
            "drain": lambda: drain.run(objects=options["objects"]),
            "hold": lambda: hold.run(objects=options["objects"], commands=options["commands"]),
            "ledger": lambda: ledger.run(commands=options["commands"], rounds=options["rounds"]),
            "pages": lambda: pages.run(receipts=options["receipts"], looks=options["looks"]),
            "preview": lambda: preview.run(rows=options["rows"]),
            "sync": lambda: sync.run(versions=options["versions"]),
            "webhooks": lambda: webhooks.run(deliveries=options["deliveries"], rounds=options["rounds"]),
        }
        result = measure[options["name"]]()
        if options["json"]:
            self.stdout.write(json.dumps(result.as_json()))
            return
        self.stdout.write(f"{result.name}: {result.value:,} {result.unit}; ratio {result.ratio} to {result.baseline}")
        self.stdout.write(json.dumps(result.details, indent=2))
