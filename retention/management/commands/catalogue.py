"""`manage.py catalogue`: bring the catalogue up to date, import files, try key rules, list strays."""

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from tqdm import tqdm

from retention import buckets, catalogue
from retention.exceptions import RetentionError
from retention.models import Bucket, CatalogueSync, KeyRule, Role, Tenant
from retention.rules import KeyFacts, RuleError
from retention.rules_trial import try_rule
from retention.sources.files import BadRow, instant
from retention.sources.importing import FORMATS, MAX_ERRORS, Format, Imported, import_file
from retention.sources.listing import summary, sync
from retention.storage import StorageError, store_for


class Command(BaseCommand):
    help = (
        "The catalogue of object versions: sync with a bucket, import a file, try a key rule, list stray derivatives."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        commands = parser.add_subparsers(dest="command", required=True, metavar="sync|import|try|strays")
        self.add_sync(commands)
        self.add_import(commands)
        self.add_try(commands)
        strays = commands.add_parser("strays", help="Derivatives that belong to no present version for sure.")
        strays.add_argument("bucket", help="Name, or name@endpoint.")
        strays.add_argument("--json", action="store_true", help="One JSON object on each line.")

    def add_sync(self, commands: Any) -> None:
        parser = commands.add_parser("sync", help="List a bucket and record every version. Resumes when called again.")
        parser.add_argument("bucket", help="Name, or name@endpoint.")
        parser.add_argument("--prefix", default="", help="Only keys that begin so.")
        parser.add_argument("--json", action="store_true")

    def add_import(self, commands: Any) -> None:
        parser = commands.add_parser("import", help="Record what a CSV or JSONL file or an S3 Inventory says.")
        parser.add_argument("file", type=Path, help="The file; for an inventory, its manifest.json.")
        parser.add_argument("--bucket", required=True, help="Name, or name@endpoint.")
        parser.add_argument("--format", choices=FORMATS, help="Default: by the name of the file.")
        parser.add_argument("--observed-at", type=moment, help="As of when the file holds; default: its last change.")
        parser.add_argument("--max-errors", type=positive, default=MAX_ERRORS, help="Stop after so many bad rows.")
        parser.add_argument("--json", action="store_true")

    def add_try(self, commands: Any) -> None:
        parser = commands.add_parser(
            "try", help="Show what a key rule would say about keys of a bucket; saves nothing."
        )
        parser.add_argument("bucket", help="Name, or name@endpoint.")
        parser.add_argument("--pattern", required=True, help="For example originals/{year}/{month}/{asset}.mp4")
        parser.add_argument("--tenant", help="Code of the tenant.")
        parser.add_argument("--role", choices=Role.values, default=Role.ORIGINAL)
        for name in ("asset", "series", "class", "original-key"):
            parser.add_argument(f"--{name}", default="", help="Template, as in the rule.")
        parser.add_argument("--limit", type=positive, default=20, help="How many keys.")

    def handle(self, *args: Any, **options: Any) -> None:
        act: Callable[..., None] = getattr(self, f"handle_{options.pop('command')}")
        bucket = known_bucket(options.pop("bucket"))
        try:
            act(bucket, **options)
        except RetentionError as error:
            raise CommandError(str(error)) from error
        except StorageError as error:
            raise CommandError(f"Bucket {bucket.name}: {error}") from error
        except KeyboardInterrupt:
            raise CommandError("Interrupted. What was recorded stays; a sync resumes.", returncode=130) from None

    def handle_sync(self, bucket: Bucket, *, prefix: str, json: bool, **_: Any) -> None:
        with tqdm(unit=" versions", disable=None) as bar:

            def show(run: CatalogueSync) -> None:
                bar.update(run.versions - bar.n)
                bar.set_postfix(pages=run.pages, vanished=run.vanished)

            run = sync(bucket, prefix=prefix, progress=show)
        if json:
            self.print_json(summary(run))
            return
        self.stdout.write(
            f"{run.versions} versions of {bucket.name} listed in {run.pages} pages; {run.vanished} vanished, "
            f"{run.refused} refused, {run.survived} survived their deletion."
        )

    def handle_import(
        self,
        bucket: Bucket,
        *,
        file: Path,
        format: Format | None,
        observed_at: datetime | None,
        max_errors: int,
        json: bool,
        **_: Any,
    ) -> None:
        with tqdm(unit=" rows", disable=None) as bar:

            def show(report: Imported) -> None:
                bar.update(report.rows - bar.n)

            report = import_file(
                bucket,
                file,
                format=format or format_of(file),
                observed_at=observed_at,
                max_errors=max_errors,
                progress=show,
            )
        if json:
            self.print_json(report.as_json())
        else:
            self.print_import(report)
        if report.errors:
            stopped = "The file was left there; correct it and import it again." if report.stopped else ""
            raise CommandError(f"{len(report.errors)} bad rows were not recorded. {stopped}".strip())

    def print_import(self, report: Imported) -> None:
        for where, error in report.errors:
            self.stderr.write(f"{where}: {error}")
        self.stdout.write(
            f"{report.rows} rows read, {report.recorded} recorded, as of {report.observed_at.isoformat()}."
        )
        if report.known:
            self.stdout.write(
                f"{report.known} rows say nothing newer than the catalogue already knows and changed nothing. "
                "If they are newer, say when they were true with --observed-at."
            )

    def handle_try(self, bucket: Bucket, *, pattern: str, role: str, limit: int, **options: Any) -> None:
        rule = KeyRule(
            bucket=bucket,
            pattern=pattern,
            role=role,
            tenant=known_tenant(options["tenant"]),
            asset=options["asset"],
            series=options["series"],
            retention_class=options["class"],
            original_key=options["original_key"],
        )
        try:
            found = try_rule(rule, limit, store=store_for(buckets.ref(bucket)))
        except RuleError as error:
            raise CommandError(f"{error.field}: {error}", returncode=2) from error
        for key, facts in found:
            self.stdout.write(f"{key!r}: {described(rule, facts)}")
        matched = sum(facts is not None for _, facts in found)
        self.stdout.write(f"{matched} of {len(found)} keys match.")

    def handle_strays(self, bucket: Bucket, *, json: bool, **_: Any) -> None:
        count = 0
        for stray in catalogue.strays(bucket):
            count += 1
            if json:
                self.print_json(stray._asdict() | {"stored_at": stray.stored_at.isoformat()})
            else:
                self.stdout.write(
                    f"{stray.key!r} @ {stray.version_id}: of no present version of {stray.original_key!r}"
                )
        if not json:
            self.stdout.write(f"{count} stray derivatives: they are left alone until a person decides.")

    def print_json(self, value: dict[str, Any]) -> None:
        self.stdout.write(json.dumps(value, ensure_ascii=False))


def known_bucket(name: str) -> Bucket:
    try:
        return buckets.named(name)
    except RetentionError as error:
        raise CommandError(str(error), returncode=2) from error


def known_tenant(code: str | None) -> Tenant | None:
    if code is None:
        return None
    found = Tenant.objects.filter(code=code).first()
    if found is None:
        known = ", ".join(Tenant.objects.values_list("code", flat=True)) or "none"
        raise CommandError(f"There is no tenant {code!r}. Known: {known}", returncode=2)
    return found


def described(rule: KeyRule, facts: KeyFacts | None) -> str:
    """What the rule says about a key, on one line."""
    if facts is None:
        return "no match"
    parts = {
        "tenant": rule.tenant.code if rule.tenant else "none (unscheduled)",
        "asset": facts.asset,
        "series": facts.series if facts.series != facts.asset else "",
        "role": rule.role,
        "original": facts.original_key,
        "class": facts.retention_class or "(unclassified)",
        "date": facts.dated_at.isoformat() if facts.dated_at else "none",
    }
    return ", ".join(f"{name} {value}" for name, value in parts.items() if value)


def format_of(path: Path) -> Format:
    """The format that a file's name tells."""
    if path.name == "manifest.json":
        return "inventory"
    known: dict[str, Format] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
    if path.suffix.lower() not in known:
        raise CommandError(f"Say with --format what {path.name} is: {', '.join(FORMATS)}.", returncode=2)
    return known[path.suffix.lower()]


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def moment(text: str) -> datetime:
    try:
        return instant("--observed-at", text).astimezone(UTC)
    except BadRow as error:
        raise argparse.ArgumentTypeError(str(error)) from error
