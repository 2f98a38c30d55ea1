"""The catalogue's only writer: one page of observations at a time, whatever the source, and the coupling that follows.

Facts of a version come from the bucket's key rules and from what an import stated (retention/facts.py). A page is one
short transaction. Times are the database's.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar, cast

import structlog
from django.db import DatabaseError, connection, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import Exists, F, OuterRef, Q

from cleanup_project.base import sqlfiles
from retention.exceptions import TryLater
from retention.facts import BucketRules, Facts, Observation, Unrecordable, incarnation
from retention.models import Bucket, ObjectVersion, Role
from retention.prefixes import successor

PAGE: Final = 1000
COUPLE_CHUNK: Final = 5000
LOCK_CLASS: Final = 0x43415441  # first key of the two-part advisory locks of syncs and imports
OBSERVED: Final = ("etag", "size", "stored_at", "is_latest", "is_delete_marker", "storage_class")
DERIVED: Final = tuple(field.name for field in fields(Facts))
COLUMNS: Final = ("key", "version_id", "incarnation", *OBSERVED, *DERIVED)

log = structlog.get_logger(__name__)
Item = TypeVar("Item")


class BucketBusy(TryLater):
    """Another sync or import of the bucket is under way."""


class Refusal(NamedTuple):
    """An observation that was not recorded, by its position in the page, and why."""

    position: int
    key: str
    reason: str


class Stray(NamedTuple):
    """A row of `sql/strays.sql`. `original_version_id` is '' where nobody stated it."""

    key: str
    version_id: str
    stored_at: datetime
    original_bucket_id: int
    original_key: str
    original_version_id: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a page did: rows added or brought up to date, observations refused, destroyed versions still shown."""

    applied: int
    refused: Sequence[Refusal]
    survived: int


def record(
    bucket: Bucket,
    observations: Sequence[Observation],
    *,
    observed_at: datetime,
    source: ObjectVersion.Source,
    rules: BucketRules | None = None,
) -> Recorded:
    """Record one page of what a source showed of a bucket at `observed_at`, in one transaction.

    `observed_at` is the database's time before the request was sent. An observation applies only where it is later than
    what is known, so that a page may come late and twice. `rules` saves compiling the bucket's rules for every page.
    Call `couple` when the last page is recorded.
    """
    rows, refused = staged(observations, rules or BucketRules.of(bucket))
    for refusal in refused:
        log.warning("observation refused", bucket=bucket.name, key=refusal.key, reason=refusal.reason)
    listing = source == ObjectVersion.Source.LISTING
    parameters: dict[str, Any] = {
        "bucket": bucket.pk,
        "source": source.value,
        "listing": listing,
        "observed_at": observed_at,
    }
    with transaction.atomic(), connection.cursor() as cursor:
        stage(cursor, rows)
        for name in ("lock_page.sql", "keep_known.sql", "keep_held.sql", "upsert_page.sql"):
            cursor.execute(sql(name), parameters)
        applied = cursor.rowcount
        cursor.execute(sql("replaced.sql"), parameters)
        survivors = list[tuple[str, str]]()
        if listing:
            cursor.execute(sql("survived.sql"), parameters)
            survivors = cursor.fetchall()
    for key, version_id in survivors:
        log.error("destroyed version is still listed", bucket=bucket.name, key=key, version_id=version_id)
    return Recorded(applied, refused, len(survivors))


def staged(observations: Sequence[Observation], rules: BucketRules) -> tuple[list[list[Any]], list[Refusal]]:
    """The page as rows of `sql/catalogue_page.sql`, and what had to be refused."""
    rows, refused, met = list[list[Any]](), list[Refusal](), set[tuple[str, str]]()
    for position, seen in enumerate(observations):
        try:
            facts = rules.of_observation(seen)
            if (seen.key, seen.version_id) in met:
                raise Unrecordable("the same version stands twice in one page")
        except Unrecordable as error:
            refused.append(Refusal(position, seen.key, str(error)))
            continue
        met.add((seen.key, seen.version_id))
        name = (seen.key, seen.version_id, incarnation(seen.version_id, seen.etag, seen.stored_at))
        rows.append([*name, *(getattr(seen, each) for each in OBSERVED), *(getattr(facts, each) for each in DERIVED)])
    return rows, refused


def stage(cursor: CursorWrapper, rows: Iterable[Sequence[Any]]) -> None:
    cursor.execute(sql("catalogue_page.sql"))
    cursor.execute("DELETE FROM catalogue_page")  # of an earlier page of the same transaction
    with cursor.copy(f"COPY catalogue_page ({', '.join(COLUMNS)}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)


def couple(bucket: Bucket, *, prefix: str = "") -> int:
    """Decide which derivatives stand alone, after the versions under a prefix have changed; returns how many changed.

    Looks at the derivatives under the prefix, and at those in any bucket whose original is under it. A derivative
    without a present original is judged on its own.
    """
    original = ObjectVersion.objects.present().filter(
        bucket=OuterRef("original_bucket"), key=OuterRef("original_key"), is_delete_marker=False
    )
    wrong = (
        ObjectVersion.objects.present()
        .filter(role=Role.DERIVATIVE, is_delete_marker=False)
        .alias(orphan=~Exists(original))
        .exclude(standalone=F("orphan"))
        .values_list("pk", flat=True)
    )
    changed = 0
    for place in (under("key", prefix, bucket=bucket), under("original_key", prefix, original_bucket=bucket)):
        for ids in chunks(wrong.filter(place).iterator(chunk_size=COUPLE_CHUNK), COUPLE_CHUNK):
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(sql("couple.sql"), {"ids": ids})
                changed += cursor.rowcount
    return changed


def strays(bucket: Bucket) -> Iterator[Stray]:
    """Derivatives whose original is there but of which no present version is theirs for sure, streamed in key order."""
    with connection.chunked_cursor() as cursor:
        cursor.execute(sql("strays.sql"), {"bucket": bucket.pk})
        while rows := cursor.fetchmany(PAGE):
            yield from map(Stray._make, rows)


@contextlib.contextmanager
def exclusive(bucket: Bucket) -> Iterator[None]:
    """Keep other syncs and imports of the bucket out, for as long as this session lives. Raises BucketBusy."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [LOCK_CLASS, bucket.pk])
        if not cursor.fetchone()[0]:
            raise BucketBusy(f"Another sync or import of bucket {bucket.name} is running. Wait until it has ended.")
    try:
        yield
    finally:
        # A lost connection has released the lock, and what broke it is the error to show.
        with contextlib.suppress(DatabaseError), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [LOCK_CLASS, bucket.pk])


def analyse() -> None:
    """Give the planner fresh figures; skipped where another session is doing it."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE (SKIP_LOCKED) retention_objectversion")


def now() -> datetime:
    """The database's clock, which goes on within a transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cast(datetime, cursor.fetchone()[0])


def under(column: str, prefix: str, **where: Any) -> Q:
    """Rows whose `column` begins with the bytes of `prefix`, as a range that an index can give."""
    place = Q(**where)
    if prefix:
        place &= Q(**{f"{column}__gte": prefix})
        end = successor(prefix)
        place &= Q(**{f"{column}__lt": end}) if end is not None else Q()
    return place


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """The items in lists of at most `size`."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def sql(name: str) -> str:
    return sqlfiles.read(__file__, name)
