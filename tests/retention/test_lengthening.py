"""A change that is proven only to lengthen or to narrow makes nothing eligible that was not; other changes are not proven."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retention import governing
from retention.duedate import add_months, due_at
from retention.eligibility import Surroundings, VersionFacts, judge
from retention.governing import Governing
from retention.lengthening import LEAST_DAYS, MOST_DAYS, least_days, most_days, only_lengthens
from retention.models import PolicyRevision, RetentionPolicy

NOW = datetime(2024, 3, 1, 12, tzinfo=UTC)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
PLAIN: dict[str, Any] = {
    "title": "Clips", "authority": "Act", "tenant_id": 1, "bucket_ids": [1], "prefixes": ["a/"],
    "retention_classes": ["*"], "trigger": "stored_at", "period_number": 3, "period_unit": "months", "cutoff": "none",
    "keep_newest": 1, "retain_permanently": False, "remove_expired_markers": True, "already_absent": "success",
    "authorisation": "standing", "cooling_off_minutes": 10, "retroactive": True, "effective_from": LONG_AGO,
}  # fmt: skip


def revision(number: int, policy: int = 1, *, in_force_from: datetime = LONG_AGO, **changed: Any) -> PolicyRevision:
    named = RetentionPolicy(pk=policy, tenant_id=1, code=f"p{policy}")
    said = PLAIN | changed
    made = PolicyRevision(pk=10 * policy + number, policy=named, number=number, **said)
    made.published_at, made.in_force_from = LONG_AGO, max(in_force_from, made.effective_from)
    return made


def proven(old: dict[str, Any], new: dict[str, Any], others: list[Governing] | None = None) -> bool:
    return only_lengthens([revision(1, **old)], revision(2, in_force_from=NOW, **new), others or [], NOW)


def rule(policy: int, **changed: Any) -> Governing:
    return governing.governing(revision(1, policy, **changed), stored_from=None, stored_to=None)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {}),
        ({}, {"period_number": 4}),
        ({}, {"period_number": 1, "period_unit": "years"}),
        ({}, {"period_number": 93, "period_unit": "days"}),
        ({"period_number": 8, "period_unit": "weeks"}, {"period_number": 2}),
        ({}, {"period_number": 0, "retain_permanently": True}),
        ({}, {"keep_newest": 2}),
        ({}, {"prefixes": ["a/b/", "a/c"]}),
        ({"bucket_ids": [1, 2]}, {"bucket_ids": [2]}),
        ({}, {"retention_classes": ["video"]}),
        ({}, {"remove_expired_markers": False}),
        ({}, {"authorisation": "approval"}),
        ({}, {"already_absent": "review"}),
        ({}, {"cooling_off_minutes": 11, "cap_objects": 5, "cap_bytes": 5, "cap_share_percent": 9}),
        ({}, {"evidence_max_age_hours": 23, "priority": 2}),
        ({}, {"window_days": "sat,sun"}),
        ({}, {"retroactive": False, "effective_from": NOW + timedelta(days=1)}),
    ],
)
def test_longer_and_narrower_is_proven(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert proven(old, new)
    if old != new:
        assert not proven(new, old)


@pytest.mark.parametrize(
    "new",
    [
        {"period_number": 91, "period_unit": "days"},
        {"trigger": "dated_at"},
        {"trigger": "event"},
        {"cutoff": "year"},
        {"authority": "Another act"},
        {"destroy_within_days": 5},
        {"prefixes": ["a/", "b/"]},
        {"prefixes": ["a"]},
        {"bucket_ids": [1, 2]},
        {"window_days": "sat", "period_number": 2},
    ],
)
def test_anything_else_is_not_proven(new: dict[str, Any]) -> None:
    assert not proven({}, new)


def test_a_window_may_not_move() -> None:
    assert not proven({"window_days": "sat"}, {"window_days": "sun"})
    assert proven({"window_days": "sat"}, {"window_days": "sat", "period_number": 4})


def test_the_first_revision_makes_things_destroyable() -> None:
    assert not only_lengthens([], revision(1), [], NOW)


def test_what_leaves_the_scope_must_not_fall_to_a_shorter_policy() -> None:
    narrower = {"prefixes": ["a/b/"]}
    assert proven({}, narrower, [rule(2, prefixes=["b/"])])
    assert proven({}, narrower, [rule(2, bucket_ids=[2])])
    assert not proven({}, narrower, [rule(2, prefixes=["a/c/"])])
    assert not proven({}, {"remove_expired_markers": False}, [rule(2, prefixes=[""])])
    assert proven({}, {"period_number": 4}, [rule(2, prefixes=[""])])


def test_older_objects_may_not_be_released_from_a_longer_predecessor() -> None:
    chain = [
        revision(1, period_number=10, period_unit="years"),
        revision(2, period_number=1, period_unit="years", retroactive=False, effective_from=datetime(2022, 1, 1, tzinfo=UTC)),
    ]  # fmt: skip
    onward = {"period_number": 2, "period_unit": "years", "in_force_from": NOW}
    since = datetime(2022, 1, 1, tzinfo=UTC)
    assert not only_lengthens(chain, revision(3, retroactive=True, **onward), [], NOW)
    assert only_lengthens(chain, revision(3, retroactive=False, effective_from=since, **onward), [], NOW)
    assert not only_lengthens(
        chain, revision(3, retroactive=False, effective_from=since - timedelta(days=1), **onward), [], NOW
    )


def test_a_longer_revision_that_is_published_but_not_yet_in_force_counts() -> None:
    coming = revision(2, period_number=10, period_unit="years", in_force_from=NOW + timedelta(days=1))
    new = revision(3, period_number=4, in_force_from=NOW)
    assert only_lengthens([revision(1)], new, [], NOW)
    assert not only_lengthens([revision(1), coming], new, [], NOW)


def test_months_have_no_fewer_and_no_more_days_than_is_assumed() -> None:
    days = [datetime(2000, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(366 * 4)]
    for months in range(12):
        found = [(add_months(day, months) - day).days for day in days]
        assert (min(found), max(found)) == (LEAST_DAYS[months], MOST_DAYS[months])
    for number in (13, 24, 47):
        made = revision(1, period_number=number)
        found = [(add_months(day, number) - day).days for day in days]
        assert least_days(made) <= min(found)
        assert most_days(made) >= max(found)


moments = st.datetimes(
    datetime(2022, 1, 1),  # noqa: DTZ001 - naive by contract
    datetime(2024, 3, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
changes = st.fixed_dictionaries(
    {},
    optional={
        "prefixes": st.sampled_from([["a/"], ["a/b/"], [""], ["a/b/", "a/c/"]]),
        "bucket_ids": st.sampled_from([[1], [2], [1, 2]]),
        "retention_classes": st.sampled_from([["*"], ["video"], ["video", ""]]),
        "period_number": st.integers(0, 5),
        "period_unit": st.sampled_from(["days", "weeks", "months", "months", "years"]),
        "cutoff": st.sampled_from(["none", "none", "month", "year"]),
        "trigger": st.sampled_from(["stored_at", "stored_at", "dated_at"]),
        "keep_newest": st.integers(0, 2),
        "retain_permanently": st.sampled_from([False, False, False, True]),
        "remove_expired_markers": st.booleans(),
        "retroactive": st.booleans(),
        "effective_from": moments,
    },
)
facts = st.builds(
    VersionFacts,
    id=st.integers(1, 10**6),
    tenant_id=st.just(1),
    bucket_id=st.sampled_from([1, 1, 2]),
    key=st.sampled_from(["a/1", "a/b/1", "a/c/1", "z"]),
    version_id=st.just("v"),
    retention_class=st.sampled_from(["", "video", "audio"]),
    series=st.just("s"),
    stored_at=moments,
    dated_at=st.none() | moments,
    present=st.just(True),
    is_delete_marker=st.sampled_from([False, False, True]),
    is_derivative=st.just(False),
)


def test_whatever_is_proven_makes_nothing_eligible_that_was_not() -> None:
    changing = 0

    @settings(max_examples=800, deadline=None, derandomize=True)
    @given(
        st.lists(changes, min_size=1, max_size=2),
        changes,
        st.lists(changes, max_size=1),
        st.lists(facts, min_size=1, max_size=8, unique_by=lambda each: each.id),
        st.lists(st.integers(0, 2000), min_size=1, max_size=4),
    )
    def holds(
        chain: list[dict[str, Any]],
        new: dict[str, Any],
        elsewhere: list[dict[str, Any]],
        versions: list[VersionFacts],
        days: list[int],
    ) -> None:
        nonlocal changing
        published = [revision(number, **said) for number, said in enumerate(chain, 1)]
        last = chain[-1]
        drafted = revision(9, in_force_from=NOW, **last | new)
        other = [revision(1, 2, **said) for said in elsewhere]
        if not only_lengthens(published, drafted, governing.in_force(other, NOW), NOW):
            return
        changing += bool(new)
        series = [each for each in versions if not each.is_delete_marker]
        for as_of in (NOW + timedelta(days=number) for number in days):
            aside = governing.in_force(other, as_of)
            before = [*governing.in_force(published, as_of), *aside]
            after = [*governing.in_force([*published, drafted], as_of), *aside]
            for each in versions:
                around = Surroundings(same_key=[each], series=series)
                if judge(each, around, after, [], as_of).eligible:
                    assert judge(each, around, before, [], as_of).eligible, (each, as_of)

    holds()
    assert changing > 100, "hardly anything was proven"


def test_the_end_of_retention_never_comes_earlier_whatever_the_day() -> None:
    @settings(max_examples=500, deadline=None, derandomize=True)
    @given(moments, *[st.tuples(st.integers(0, 800), st.sampled_from(["days", "weeks", "months", "years"]))] * 2)
    def holds(moment: datetime, old: tuple[int, str], new: tuple[int, str]) -> None:
        ends = [due_at(moment, number=number, unit=unit, cutoff="none") for number, unit in (old, new)]
        said = [{"period_number": number, "period_unit": unit} for number, unit in (old, new)]
        if proven(*said):
            assert ends[1] >= ends[0]

    holds()
