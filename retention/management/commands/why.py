"""`manage.py why OBJECT`: why an object is eligible for destruction, or why not."""

import json
from datetime import datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.dateparse import parse_datetime

from cleanup_project.base import clock
from cleanup_project.base.canonical import instant
from retention import why
from retention.models import Bucket, ObjectVersion

MAX_VERSIONS = 1000


class Command(BaseCommand):
    help = "Say for every catalogued version of an object whether its retention has ended, which policies and holds say what."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("object", metavar="OBJECT", help="An exact key, or s3://BUCKET/KEY.")
        parser.add_argument("--bucket", help="Look in this bucket only.")
        parser.add_argument("--version-id", help="This version id only.")
        parser.add_argument("--as-of", type=moment, help="Judge at this time, for example 2027-01-01T00:00:00Z.")
        parser.add_argument("--json", action="store_true", help="Print a JSON list.")

    def handle(self, *args: Any, **options: Any) -> None:
        as_of = options["as_of"] or clock.now()
        rows = list(find(options["object"], options["bucket"], options["version_id"]))
        if not rows:
            raise CommandError(
                f"{options['object']!r} is not in the catalogue. Keys are exact, byte for byte; has its bucket been "
                "synced since it was stored (manage.py catalogue sync BUCKET)?"
            )
        verdicts = [(row, why.why(row, as_of)) for row in rows]
        if options["json"]:
            self.stdout.write(json.dumps([why.as_json(row, verdict, as_of) for row, verdict in verdicts]))
            return
        for row, verdict in verdicts:
            kind = "delete marker" if row.is_delete_marker else "version"
            self.stdout.write(f"{row.bucket}/{row.key!r} {kind} {row.version_id}, as of {instant(as_of)}")
            for sentence in why.explain(row, verdict):
                self.stdout.write(f"  {sentence}")


def find(named: str, bucket: str | None, version_id: str | None) -> list[ObjectVersion]:
    """The catalogued versions that the arguments name, the newest first."""
    if "\x00" in named:
        raise CommandError("A key cannot hold NUL.")
    if named.startswith("s3://") and bucket is None:
        bucket, _, named = named.removeprefix("s3://").partition("/")
    rows = ObjectVersion.objects.with_key(named).select_related("bucket", "tenant")
    if bucket is not None:
        if not Bucket.objects.filter(name=bucket).exists():
            known = ", ".join(Bucket.objects.values_list("name", flat=True)) or "none yet"
            raise CommandError(f"No bucket is called {bucket!r}. Known: {known}.")
        rows = rows.filter(bucket__name=bucket)
    if version_id is not None:
        rows = rows.filter(version_id=version_id)
    return list(rows.order_by("-stored_at", "-id")[:MAX_VERSIONS])


def moment(text: str) -> datetime:
    """A time with its zone, from ISO 8601 text."""
    parsed = parse_datetime(text)
    if parsed is None or parsed.tzinfo is None:
        raise ValueError(f"{text!r} is no time with a zone")
    return parsed
