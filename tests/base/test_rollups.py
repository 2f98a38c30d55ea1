"""Rollups: whatever happened is counted once, when it has settled, and percentiles are as near as they say."""

import math
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.db.models import Sum
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cleanup_project.base import clock, rollups
from cleanup_project.base.models import Rollup, RollupMark, RollupTotal
from cleanup_project.base.rollups import ERROR, KEPT, MINUTE, SHORTEST, SPANS, UNSETTLED, Source

pytestmark = pytest.mark.django_db

SOURCE = Source(
    "tests",
    ("walk", "run"),
    "SELECT metric, tenant, label, at, took, 1 FROM sample WHERE at >= %(begin)s AND at < %(end)s",
)
Row = tuple[str, str, str, datetime, float | None]


@pytest.fixture(autouse=True)
def table(db: None) -> Iterator[None]:
    with connection.cursor() as cursor:
        this_minute.cache_clear()
        cursor.execute("CREATE TABLE sample (metric text, tenant text, label text, at timestamptz, took float8)")
        yield
        cursor.execute("DROP TABLE sample")


def add(rows: Sequence[Row]) -> None:
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO sample VALUES (%s, %s, %s, %s, %s)", rows)


def minutes_ago(minutes: float) -> datetime:
    """In the middle of a minute that closed so many minutes ago."""
    return this_minute() - timedelta(minutes=minutes) + timedelta(seconds=30)


@cache
def this_minute() -> datetime:
    """In which the test began: it may end in the next one."""
    return clock.now().replace(second=0, microsecond=0)


def walks(times: Sequence[float | None], minutes: float = 1, tenant: str = "acme", label: str = "") -> None:
    add([("walk", tenant, label, minutes_ago(minutes), each) for each in times])


def count() -> int:
    return rollups.count([SOURCE])


def total(seconds: int = MINUTE, tenant: str = "") -> int:
    rows = Rollup.objects.filter(seconds=seconds, tenant=tenant)
    return int(rows.aggregate(total=Sum("n"))["total"] or 0)


def counted_until(moment: datetime) -> None:
    RollupMark.objects.update_or_create(pk=SOURCE.name, defaults={"counted_until": moment})


def rank(times: Sequence[float], share: float) -> float:
    return sorted(times)[math.ceil(share * len(times)) - 1]


DURATIONS = st.lists(st.floats(0, 3e9), min_size=1, max_size=60)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(DURATIONS)
def test_percentiles_are_within_the_stated_error_and_the_longest_is_exact(times: list[float]) -> None:
    Rollup.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM sample")
    walks(times)
    count()
    for span in SPANS.values():
        whole, *points = rollups.percentiles("walk", span)
        assert (whole.begins_at, whole.number, whole.greatest) == (None, len(times), max(times))
        assert [point[1:] for point in points] == [whole[1:]]
        for share, told in zip(rollups.RANKS, (whole.p50, whole.p95, whole.p99), strict=True):
            assert told == pytest.approx(rank(times, share), rel=ERROR * 1.001, abs=SHORTEST)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0, 3e9))
def test_the_database_and_python_agree_on_buckets(took: float) -> None:
    Rollup.objects.all().delete()
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM sample")
    walks([took])
    count()
    (found,) = Rollup.objects.filter(seconds=MINUTE, tenant="").values_list("bucket", flat=True)
    assert abs(found - rollups.bucket_of(took)) <= (took != rollups.SHORTEST)  # at a bound, the last bit may decide
    assert rollups.middle_of(found) == pytest.approx(took, rel=ERROR * 1.001, abs=SHORTEST)


def test_what_has_not_closed_waits_and_what_has_is_counted_once() -> None:
    walks([1.0, 2.0])
    add([("walk", "acme", "", clock.now() + timedelta(minutes=1), 3.0)])
    assert count() == 1
    assert (total(), count(), total()) == (2, 0, 2)


def test_what_commits_late_is_counted_while_a_transaction_of_its_time_may_live() -> None:
    walks([1.0])
    count()
    settled = UNSETTLED.total_seconds() / MINUTE
    walks([1.0], minutes=settled)
    assert (count(), total()) == (1, 2)
    walks([1.0], minutes=settled + 1)  # no transaction lives so long
    assert (count(), total()) == (0, 2)


def test_a_long_outage_is_caught_up_in_slices_and_loses_nothing() -> None:
    for ago in range(1, 300, 7):
        walks([1.0], minutes=ago)
    counted_until(this_minute() - timedelta(hours=5))
    marks = []
    while not marks or marks[-1] < this_minute():
        count()
        marks.append(RollupMark.objects.get().counted_until)
    assert [(later - earlier) for earlier, later in pairwise(marks)] == [rollups.SLICE] * 4
    assert {seconds: total(seconds) for seconds in KEPT} == dict.fromkeys(KEPT, 43)


def test_every_stretch_adds_up_for_each_tenant_and_for_all_together() -> None:
    for ago in (1, 2, 40):
        walks([1.0, None], minutes=ago)
        walks([8.0], minutes=ago, tenant="other", label="x")
    counted_until(this_minute() - timedelta(minutes=40))
    count()
    for seconds in KEPT:
        assert (total(seconds), total(seconds, "acme"), total(seconds, "other")) == (9, 6, 3)
    span = SPANS["24h"]
    assert rollups.by_label(["walk", "run"], span) == {"walk": {"": 6, "x": 3}, "run": {}}
    assert rollups.by_label(["walk"], span, ["other"]) == {"walk": {"x": 3}}
    assert rollups.percentiles("walk", span, ["other"])[0][1:] == (3, 8.0, 8.0, 8.0, 8.0)
    assert rollups.percentiles("walk", span, ["acme", "other"])[0].number == 6  # three were not timed
    assert rollups.percentiles("run", span) == []


def test_a_stretch_is_kept_for_its_time_and_nothing_goes_before_it_was_summed_up() -> None:
    """An outage of a year: minutes are counted that are older than minutes are kept."""
    long_ago = this_minute() - timedelta(days=300)
    add([("walk", "acme", "", long_ago + timedelta(minutes=n), 1.0) for n in range(600)])
    counted_until(long_ago)
    while count():
        pass
    assert {seconds: total(seconds) for seconds in KEPT} == dict.fromkeys(KEPT, 600)
    counted_until(this_minute() - timedelta(minutes=1))
    count()
    kept = {seconds: total(seconds) for seconds in KEPT}
    assert kept == {60: 0, 900: 0, 3600: 0, 21600: 600}


def happened(metric: str = "walk") -> dict[str, int]:
    """By label, since counting began."""
    found: dict[str, int] = {}
    for (label, _bucket), number in rollups.totals([SOURCE])[metric].items():
        found[label] = found.get(label, 0) + number
    return found


def test_what_has_happened_is_never_less_than_it_was_whatever_is_forgotten() -> None:
    begun = this_minute() - timedelta(days=3)
    for n in range(60):
        add([("walk", "acme", "x" if n % 2 else "", begun + timedelta(minutes=n), 1.0)])
    counted_until(begun)
    before: dict[str, int] = {}
    while RollupMark.objects.get().counted_until < this_minute():
        count()
        now = happened()
        assert all(now[label] >= number for label, number in before.items())
        before = now
    assert total() == 0, "minutes are kept for two days"
    assert happened() == {"": 30, "x": 30}
    assert rollups.totals([SOURCE])["run"] == {}


def test_minutes_that_may_still_change_are_told_and_added_once() -> None:
    counted_until(this_minute() - timedelta(minutes=10))
    walks([1.0], minutes=8)
    walks([1.0], minutes=2)
    count()
    assert (happened(), RollupTotal.objects.get().n) == ({"": 2}, 1)
    walks([1.0], minutes=2)
    count()
    assert happened() == {"": 3}
    counted_until(this_minute())
    count()
    assert (happened(), RollupTotal.objects.get().n) == ({"": 3}, 1)


def test_a_row_may_stand_for_many() -> None:
    walks([1.0, 1.0, None])
    many = SOURCE._replace(select=SOURCE.select.replace("took, 1 FROM", "took, 500 FROM"))
    rollups.count([many])
    assert total() == 1500
    assert happened() == {"": 1500}


def test_one_counts_at_a_time(transactional_db: None, settings: Any) -> None:
    counted_until(this_minute() - timedelta(minutes=2))
    walks([1.0])
    parameters = connection.get_connection_params()
    parameters.pop("cursor_factory", None)
    parameters.pop("context", None)
    with psycopg.connect(**parameters) as other:
        other.execute("SELECT pg_advisory_xact_lock(hashtext('rollup'), hashtext(%s))", [SOURCE.name])
        assert (count(), total()) == (0, 0)
    assert (count(), total()) == (1, 1)


def test_a_source_that_fails_leaves_its_mark_and_its_rows(transactional_db: None) -> None:
    walks([1.0])
    before = this_minute() - timedelta(minutes=2)
    counted_until(before)
    with pytest.raises(Exception, match="division by zero"):
        rollups.count([SOURCE._replace(select=SOURCE.select.replace("took, 1 FROM", "1 / (took - 1), 1 FROM"))])
    assert RollupMark.objects.get().counted_until == before
    assert total() == 0
