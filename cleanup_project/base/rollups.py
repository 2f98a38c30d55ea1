"""Rollups: what happened each minute, counted from the append-only record, and summed up into longer stretches.

A minute is counted after it has closed, and again until no transaction that began in it can still commit. So it is found by
its time and not by ids, which commit out of order; workers count nothing themselves, and never wait for one another over a
row that all of them would change. Samples are only ever added: a count that comes again writes the same numbers, or larger
ones where something has committed since. A round that is lost costs time alone.

Durations fall into buckets, each a tenth longer than the one before, so that a percentile is known within 5 percent (`ERROR`)
however many there were; the longest is kept exactly.

A minute that will not change any more is added to totals, which outlive it: how often something has happened since it was
first counted never becomes less.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from typing import Any, Final, LiteralString, NamedTuple

import structlog
from django.db import connection, transaction

from cleanup_project.base import clock, limits, sqlfiles
from cleanup_project.base.models import Rollup, RollupMark

MINUTE: Final = 60
# How long rows of each stretch (in seconds) are kept; each is summed up from the one before it.
KEPT: Final[Mapping[int, timedelta]] = {
    MINUTE: timedelta(days=2),
    900: timedelta(days=8),
    3600: timedelta(days=60),
    21600: timedelta(days=400),
}
# A closed minute is counted anew for so long: no task, and so none of its transactions, lives longer.
UNSETTLED: Final = timedelta(seconds=limits.TASK_TIMEOUT + 2 * MINUTE)
SLICE: Final = timedelta(hours=1)  # what one round counts of what was left behind

SHORTEST: Final = 0.001  # seconds: all that is shorter is one bucket
GROWTH: Final = 1.1
ERROR: Final = math.sqrt(GROWTH) - 1  # of a percentile, relative, above SHORTEST
RANKS: Final = (0.5, 0.95, 0.99)

log = structlog.get_logger(__name__)


class Source(NamedTuple):
    """A SELECT of (metric, tenant, label, at, took, number) for `at` in [begin, end), by an index on its time.

    `took` is in seconds, or NULL where nothing is timed; `number` is how many the row stands for. No other source has its
    metrics.
    """

    name: str
    metrics: tuple[str, ...]
    select: LiteralString


class Span(NamedTuple):
    """A stretch of time to look back over: in how many points of how many seconds."""

    words: str
    length: timedelta
    seconds: int


SPANS: Final[Mapping[str, Span]] = {
    "1h": Span("1 hour", timedelta(hours=1), MINUTE),
    "24h": Span("24 hours", timedelta(hours=24), 900),
    "7d": Span("7 days", timedelta(days=7), 3600),
    "30d": Span("30 days", timedelta(days=30), 21600),
}


class Point(NamedTuple):
    """Durations in seconds of what happened in one stretch of time; `begins_at` is None for the whole span."""

    begins_at: datetime | None
    number: int
    p50: float
    p95: float
    p99: float
    greatest: float


def count(sources: Iterable[Source]) -> int:
    """Count what has closed since the last round, a slice at most of each source; returns how many minutes changed."""
    return sum(count_source(each) for each in sources)


def count_source(source: Source) -> int:
    """One slice of one source, in one transaction. Returns 0 where somebody else is about it."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(hashtext('rollup'), hashtext(%s))", [source.name])
        if not cursor.fetchone()[0]:
            return 0
        closed = clock.now().replace(second=0, microsecond=0)
        mark = RollupMark.objects.filter(pk=source.name).first()
        counted_until = mark.counted_until if mark else closed
        begin, end = counted_until - UNSETTLED, min(closed, counted_until + SLICE)
        changed = count_between(source, begin, end)
        if changed:
            fold(source.metrics, changed[0], changed[-1])
        settle(source.metrics, counted_until - UNSETTLED, end - UNSETTLED)
        RollupMark.objects.update_or_create(pk=source.name, defaults={"counted_until": end})
        forget(source.metrics, end)
    if end < closed:
        log.warning("rollups are behind", source=source.name, counted_until=str(end))
    return len(changed)


def count_between(source: Source, begin: datetime, end: datetime) -> list[datetime]:
    """The minutes from `begin` to before `end` of which something is counted that was not; both begin a minute."""
    statement = sqlfiles.read(__file__, "rollup_count.sql").replace("{source}", source.select)
    with connection.cursor() as cursor:
        cursor.execute(
            statement, {"begin": begin, "end": end, "shortest": SHORTEST, "growth": GROWTH, "minute": MINUTE}
        )
        return [row[0] for row in cursor.fetchall()]


def fold(metrics: Sequence[str], first: datetime, last: datetime) -> None:
    with connection.cursor() as cursor:
        for finer, coarser in pairwise(KEPT):
            cursor.execute(
                sqlfiles.read(__file__, "rollup_fold.sql"),
                {"metrics": list(metrics), "finer": finer, "coarser": coarser, "first": first, "last": last},
            )


def settle(metrics: Sequence[str], first: datetime, before: datetime) -> None:
    """Add minutes to the totals that no round will count anew; each once, since the mark moves in the same transaction."""
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "rollup_settle.sql"),
            {"metrics": list(metrics), "minute": MINUTE, "first": first, "before": before},
        )


def forget(metrics: Sequence[str], counted_until: datetime) -> None:
    """Remove what is older than its stretch is kept, reckoned from what is counted: nothing goes before it was summed up."""
    for seconds, kept in KEPT.items():
        Rollup.objects.filter(seconds=seconds, begins_at__lt=counted_until - kept, metric__in=metrics).delete()


def bucket_of(took: float) -> int:
    """As rollup_count.sql has it: bucket 0 ends at SHORTEST, each further one GROWTH times as far."""
    return math.ceil(math.log(max(took, SHORTEST) / SHORTEST) / math.log(GROWTH))


def end_of(bucket: int) -> float:
    """The longest duration that is in the bucket."""
    return float(SHORTEST * GROWTH**bucket)


def middle_of(bucket: int) -> float:
    """The duration that is off by ERROR at most from any in the bucket; SHORTEST for bucket 0."""
    return float(SHORTEST * GROWTH ** (bucket - 0.5)) if bucket else SHORTEST


def percentiles(metric: str, span: Span, tenants: Sequence[str] = ()) -> list[Point]:
    """The whole span first, then each stretch in which something happened; empty where nothing did.

    `tenants` are codes; none: all tenants together.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "rollup_durations.sql"), {"metric": metric} | looking_back(span, tenants)
        )
        found = cursor.fetchall()
    if not found:
        return []
    stretches = [(begins_at, spread_of(buckets, numbers), greatest) for begins_at, buckets, numbers, greatest in found]
    whole = summed((spread.keys(), spread.values()) for _, spread, _ in stretches)
    longest = max(greatest for _, _, greatest in stretches)
    return [point(*each) for each in ((None, whole, longest), *stretches)]


def spread_of(buckets: Sequence[int], numbers: Sequence[int]) -> dict[int, int]:
    """How many lie in each bucket; most stretches name a bucket once, and need no summing up."""
    spread = dict(zip(buckets, numbers, strict=True))
    return spread if len(spread) == len(buckets) else summed([(buckets, numbers)])


def summed(parts: Iterable[tuple[Iterable[int], Iterable[int]]]) -> dict[int, int]:
    """How many lie in each bucket; each part is of buckets and as many numbers."""
    spread: dict[int, int] = {}
    for buckets, numbers in parts:
        for bucket, number in zip(buckets, numbers, strict=True):
            spread[bucket] = spread.get(bucket, 0) + number
    return spread


def point(begins_at: datetime | None, spread: Mapping[int, int], greatest: float) -> Point:
    """A rank is the nearest: of n samples, the ceil(rank × n)th."""
    buckets = sorted(spread)
    up_to = list(accumulate(spread[bucket] for bucket in buckets))
    total = up_to[-1]
    ranked = (buckets[bisect_left(up_to, math.ceil(rank * total))] for rank in RANKS)
    p50, p95, p99 = (min(middle_of(each), greatest) for each in ranked)
    return Point(begins_at, total, p50, p95, p99, greatest)


def totals(sources: Iterable[Source]) -> dict[str, dict[tuple[str, int], int]]:
    """Of each metric, how often (label, bucket) has happened since it was first counted. It is only ever added to."""
    owners = [(source.name, metric) for source in sources for metric in source.metrics]
    found: dict[str, dict[tuple[str, int], int]] = {metric: {} for _, metric in owners}
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "rollup_totals.sql"),
            {
                "sources": [name for name, _ in owners],
                "metrics": [metric for _, metric in owners],
                "minute": MINUTE,
                "unsettled": UNSETTLED.total_seconds(),
            },
        )
        for metric, label, bucket, number in cursor.fetchall():
            found[metric][label, bucket] = number
    return found


def looking_back(span: Span, tenants: Sequence[str]) -> dict[str, Any]:
    """The parameters of both reads."""
    return {
        "seconds": span.seconds,
        "tenants": list(tenants) or [""],
        "length": f"{span.length.total_seconds()} s",
    }


def by_label(metrics: Sequence[str], span: Span, tenants: Sequence[str] = ()) -> dict[str, dict[str, int]]:
    """Of each metric, how often each label happened, the most frequent first."""
    found: dict[str, dict[str, int]] = {metric: {} for metric in metrics}
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "rollup_by_label.sql"), {"metrics": list(metrics)} | looking_back(span, tenants)
        )
        for metric, label, number in cursor.fetchall():
            found[metric][label] = number
    return found
