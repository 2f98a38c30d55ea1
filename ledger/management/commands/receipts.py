"""`manage.py receipts export` and `receipts verify`: receipts as CSV files with a manifest, and the check of them."""

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from django.core.management.base import BaseCommand, CommandError, CommandParser
from tqdm import tqdm

from ledger import exportcheck, exportfiles, exports
from ledger.exceptions import LedgerError
from ledger.models import CleanupCommand, ReceiptExport
from ledger.selection import Selection

NAMES = ("tenant", "bucket", "policy", "run")


def moment(text: str) -> datetime:
    """A date or a time in ISO 8601; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is no time such as 2026-01-31 or 2026-01-31T14:00Z.") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


class Command(BaseCommand):
    help = "Export receipts as CSV files with a manifest of their digests, or check such an export."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True)
        made = acts.add_parser("export", help="Write files of at most 1,000,000 receipts each, and their manifest.")
        made.add_argument("--from", dest="issued_from", type=moment, metavar="TIME", help="Issued then or later, UTC.")
        made.add_argument("--to", dest="issued_before", type=moment, metavar="TIME", help="Issued before then, UTC.")
        for name in NAMES:
            made.add_argument(f"--{name}", default="", metavar="NAME")
        made.add_argument("--outcome", choices=CleanupCommand.Outcome.values, default="")
        made.add_argument(
            "--form",
            choices=ReceiptExport.Form.values,
            default="machines",
            help="machines (the default): exact, with the documents; people: safe in a spreadsheet",
        )
        made.add_argument("--out", type=Path, required=True, metavar="DIR", help="Made where it is not there.")
        made.add_argument("--json", action="store_true", help="Print one JSON object at the end.")
        checked = acts.add_parser("verify", help="Compare the files in a directory with their manifests.")
        checked.add_argument("directory", type=Path, metavar="DIR")
        checked.add_argument("--json", action="store_true", help="Print one JSON object.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["act"] == "export":
            self.export(options)
        else:
            self.verify(options["directory"], as_json=options["json"])

    def export(self, options: dict[str, Any]) -> None:
        given = {name: options[name] for name in ("issued_from", "issued_before", "outcome", *NAMES)}
        order = exports.Order(Selection(**given), options["form"], uuid4())
        folder: Path = options["out"]
        try:
            with tqdm(unit=" receipts", disable=not sys.stderr.isatty() or options["json"]) as bar:
                export = exports.write(order, folder, after_part=lambda part: bar.update(part.rows))
            (folder / exportfiles.manifest_name(export)).write_bytes(exportfiles.manifest(export))
            (folder / "exportcheck.py").write_bytes(Path(exportcheck.__file__).read_bytes())
        except (LedgerError, OSError) as refusal:
            raise CommandError(str(refusal)) from refusal
        if options["json"]:
            told = {"export": export.pk, "receipts": export.rows, "bytes": export.bytes, "digest": export.digest}
            parts = [{"file": part.file_name, "sha256": part.sha256} for part in export.parts.all()]
            self.stdout.write(json.dumps(told | {"directory": str(folder), "parts": parts}))
        else:
            self.stdout.write(f"{export.rows:,} receipts, {export.bytes:,} bytes in {folder}; digest {export.digest}.")

    def verify(self, folder: Path, *, as_json: bool) -> None:
        findings = exportcheck.check(folder)
        if as_json:
            self.stdout.write(json.dumps({"directory": str(folder), "findings": findings}))
        if findings:
            raise CommandError("\n".join(findings))
        if not as_json:
            self.stdout.write("All is as the manifests say.")
