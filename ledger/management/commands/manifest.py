"""`manage.py manifest RUN_KEY`: a sealed manifest as CSV or JSONL."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ledger.downloads import export
from ledger.exceptions import LedgerError
from ledger.models import CleanupRun


class Command(BaseCommand):
    help = "Write the sealed manifest of a run: its targets as CSV, or its canonical lines as JSONL."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run_key")
        parser.add_argument("--format", choices=("csv", "jsonl"), default="csv")
        parser.add_argument("--output", type=Path, metavar="FILE", help="standard output without it")
        parser.add_argument(
            "--raw", action="store_true", help="CSV for machines: no ' before what looks like a formula"
        )

    def handle(self, *, run_key: str, format: str, output: Path | None, raw: bool, **_: Any) -> None:
        if raw and format == "jsonl":
            raise CommandError("JSONL is always exact: --raw is for CSV.")
        run = CleanupRun.objects.filter(key=run_key).first()
        if run is None:
            raise CommandError(f"There is no run {run_key}.")
        try:
            content = export(run, format, by=None, raw=raw)
        except LedgerError as refusal:
            raise CommandError(str(refusal)) from refusal
        if output:
            write_whole(output, content)
        else:
            sys.stdout.buffer.writelines(content)
            sys.stdout.buffer.flush()
        self.stderr.write(f"{run.item_count} items, manifest root {run.manifest_root}")


def write_whole(output: Path, content: Iterable[bytes]) -> None:
    """The file appears under its name only once it is complete."""
    unfinished = output.with_name(f"{output.name}.part")
    with unfinished.open("wb") as file:
        file.writelines(content)
    os.replace(unfinished, output)
