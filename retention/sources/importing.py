"""Imports: what a file says about a bucket, recorded page by page. Good rows are kept, bad ones reported by line."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import file_digest, md5
from pathlib import Path
from typing import Any, Final, Literal
from uuid import UUID

from django.db import DatabaseError, connection, transaction
from django.db.models.functions import Now

from cleanup_project.base import audit
from cleanup_project.base.canonical import instant
from cleanup_project.base.models import User
from retention import catalogue, freshness
from retention.exceptions import NotPermitted, RetentionError
from retention.facts import BucketRules, Observation
from retention.models import Bucket, CatalogueSync, ObjectVersion, Tenant
from retention.sources.files import Line, read_csv, read_jsonl
from retention.sources.inventory import read_inventory, read_manifest

Format = Literal["csv", "jsonl", "inventory"]
FORMATS: Final[Sequence[Format]] = ("csv", "jsonl", "inventory")
MAX_ERRORS: Final = 100

Source = ObjectVersion.Source


@dataclass(slots=True)
class Imported:
    """What an import did. `known`: rows that say nothing newer than the catalogue; `errors`: (where, what is wrong)."""

    observed_at: datetime
    rows: int = 0
    recorded: int = 0
    known: int = 0
    errors: list[tuple[str, str]] = field(default_factory=list)
    stopped: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "observed_at": self.observed_at.isoformat(),
            "rows": self.rows,
            "recorded": self.recorded,
            "known": self.known,
            "errors": [{"where": where, "error": error} for where, error in self.errors],
            "stopped": self.stopped,
        }


def import_file(
    bucket: Bucket,
    path: Path,
    *,
    format: Format,
    observed_at: datetime | None = None,
    max_errors: int = MAX_ERRORS,
    whole: bool = True,
    progress: Callable[[Imported], None] | None = None,
) -> Imported:
    """Record what a file says about a bucket; for `inventory`, the file is its manifest.json.

    The rows hold as of the inventory's creation, of `observed_at`, or of the file's last change; never later than now.
    `whole`: it is about the whole bucket, whose catalogue then is as fresh as the file is.
    After `max_errors` bad rows the file is left, and what was good until then stays. Raises BucketBusy, and
    RetentionError for a file that cannot be read at all.
    """
    source, lines, stated_at = open_source(bucket, path, format)
    report = Imported(min(observed_at or stated_at, catalogue.now()))
    rules = BucketRules.of(bucket)
    with catalogue.exclusive(bucket), remembering_names():
        for page in pages(lines, report, max_errors):
            observations = [each.observation for each in page if each.observation is not None]
            recorded = catalogue.record(
                bucket, observations, observed_at=report.observed_at, source=source, rules=rules
            )
            report.errors += [(page[each.position].where, each.reason) for each in recorded.refused]
            report.recorded += recorded.applied
            report.known += len(page) - recorded.applied - len(recorded.refused)
            if progress is not None:
                progress(report)
        catalogue.couple(bucket)
        if whole and not report.stopped:
            finished(bucket, report, source)
        catalogue.analyse()
    return report


def upload(*, bucket: Bucket, path: Path, format: Format, observed_at: datetime, by: User) -> Imported:
    """`import_file` of what somebody sent: on record before its first row, and with how it ended.

    What is sent may be a piece or nothing at all, so the catalogue of the bucket is no fresher by it. A file says of any key
    whose it is, so it takes an account that sees every tenant. Raises NotPermitted, and as `import_file`.
    """
    if by.tenants:
        raise NotPermitted(
            f"{by} decides about what belongs to {', '.join(by.tenants)}, and an upload may name objects of any tenant: that "
            "needs an account of every tenant."
        )
    with path.open("rb") as file:
        told = {"sha256": file_digest(file, "sha256").hexdigest(), "bytes": path.stat().st_size, "format": format}
    with transaction.atomic():
        after = told | {"observed_at": instant(observed_at)}
        audit.record(action="catalogue.upload_begun", subject=bucket, by=by, after=after)
    try:
        report = import_file(bucket, path, format=format, observed_at=observed_at, whole=False)
    except Exception as error:
        with transaction.atomic():
            failed = told | {"error": str(error) or type(error).__name__}
            audit.record(action="catalogue.upload_failed", subject=bucket, by=by, after=failed)
        raise
    with transaction.atomic():
        counted = {"rows": report.rows, "recorded": report.recorded, "errors": len(report.errors)}
        audit.record(
            action="catalogue.uploaded", subject=bucket, by=by, after=told | counted | {"stopped": report.stopped}
        )
    return report


def finished(bucket: Bucket, report: Imported, source: Source) -> None:
    """Keep that the catalogue says what a file said, as of when that was true."""
    CatalogueSync.objects.create(
        bucket=bucket,
        source=source,
        started_at=report.observed_at,
        finished_at=Now(),
        versions=report.rows - len(report.errors),
        refused=len(report.errors),
    )
    freshness.review(bucket)


def open_source(bucket: Bucket, path: Path, format: Format) -> tuple[Source, Iterator[Line], datetime]:
    """The rows of a file, where they come from, and as of when they hold."""
    try:
        if format == "inventory":
            inventory = read_manifest(path)
            if inventory.source_bucket != bucket.name:
                raise RetentionError(f"The inventory is about bucket {inventory.source_bucket}, not {bucket.name}.")
            return Source.INVENTORY, read_inventory(inventory), inventory.created_at
        changed_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError as error:
        raise RetentionError(f"{path} cannot be read: {error.strerror}.") from error
    tenants: Mapping[str, int] = dict(Tenant.objects.values_list("code", "pk"))
    read = read_csv if format == "csv" else read_jsonl
    return Source.IMPORT, read(path, tenants), changed_at


def pages(lines: Iterator[Line], report: Imported, max_errors: int) -> Iterator[list[Line]]:
    """The good rows in pages; bad ones go to the report, and once that holds `max_errors`, no more is read."""
    for chunk in catalogue.chunks(lines, catalogue.PAGE):
        good = list[Line]()
        for each in chunk:
            report.rows += 1
            if each.observation is None:
                report.errors.append((each.where, each.error))
                if len(report.errors) >= max_errors:
                    break
            else:
                good.append(each)
        yield first_of_their_name(good, report)
        if len(report.errors) >= max_errors:
            report.stopped = True
            return


@contextlib.contextmanager
def remembering_names() -> Iterator[None]:
    """Remember, outside of this process's memory, which versions a file has named."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE catalogue_named (digest uuid PRIMARY KEY, place text NOT NULL)")
    try:
        yield
    finally:
        # The connection may serve another import next, whatever became of this one; a lost one has forgotten the table.
        with contextlib.suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS catalogue_named")


def first_of_their_name(lines: Sequence[Line], report: Imported) -> list[Line]:
    """The rows whose version no earlier row has named; the others go to the report."""
    digests = [digest(each.observation) for each in lines]
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO catalogue_named SELECT * FROM unnest(%s::uuid[], %s::text[]) ON CONFLICT DO NOTHING"
            " RETURNING place",
            [digests, [each.where for each in lines]],
        )
        first = {row[0] for row in cursor.fetchall()}
        if len(first) == len(lines):
            return list(lines)
        cursor.execute("SELECT digest, place FROM catalogue_named WHERE digest = ANY(%s::uuid[])", [digests])
        places = dict(cursor.fetchall())
    for each, name in zip(lines, digests, strict=True):
        if each.where not in first:
            report.errors.append((each.where, f"it names the same version as {places[name]}: remove one of the two"))
    return [each for each in lines if each.where in first]


def digest(seen: Observation | None) -> UUID:
    assert seen is not None
    name = f"{seen.key}\0{seen.version_id}".encode(errors="surrogatepass")
    return UUID(bytes=md5(name, usedforsecurity=False).digest())
