"""When retention ends: clamped months, leap days, cut-offs, and a bound that never misses what is due."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.duedate import FAR_FUTURE, due_at, latest_trigger

moments = st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1)).map(lambda naive: naive.replace(tzinfo=UTC))  # noqa: DTZ001
rules = st.fixed_dictionaries(
    {
        "number": st.integers(0, 4000),
        "unit": st.sampled_from(["days", "weeks", "months", "years"]),
        "cutoff": st.sampled_from(["none", "month", "quarter", "year"]),
    }
)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("trigger", "number", "unit", "cutoff", "due"),
    [
        ("2024-02-29", 1, "years", "none", "2025-02-28"),
        ("2024-02-29", 4, "years", "none", "2028-02-29"),
        ("2023-01-31T12:30", 1, "months", "none", "2023-02-28T12:30"),
        ("2023-01-31", 2, "months", "none", "2023-03-31"),
        ("2023-12-31T23:59:59", 1, "days", "none", "2024-01-01T23:59:59"),
        ("2023-03-05", 2, "weeks", "none", "2023-03-19"),
        ("2023-03-05", 0, "days", "month", "2023-04-01"),
        ("2023-03-01", 0, "days", "month", "2023-04-01"),
        ("2023-05-05", 1, "months", "quarter", "2023-08-01"),
        ("2023-12-31", 1, "years", "year", "2025-01-01"),
    ],
)
def test_periods_end_as_documented(trigger: str, number: int, unit: str, cutoff: str, due: str) -> None:
    assert due_at(at(trigger), number=number, unit=unit, cutoff=cutoff) == at(due)


def test_a_period_beyond_the_calendar_never_ends() -> None:
    assert due_at(at("9000-01-01"), number=4000, unit="years", cutoff="none") == FAR_FUTURE
    assert due_at(at("9990-01-01"), number=4000, unit="weeks", cutoff="none") == FAR_FUTURE


@given(moments, moments, rules)
def test_whatever_is_due_lies_within_the_bound(trigger: datetime, as_of: datetime, rule: dict[str, object]) -> None:
    bound = latest_trigger(as_of, **rule)  # type: ignore[arg-type]
    if due_at(trigger, **rule) <= as_of:  # type: ignore[arg-type]
        assert trigger <= bound


@given(moments, rules)
def test_the_bound_is_generous_by_days_at_most(as_of: datetime, rule: dict[str, object]) -> None:
    bound = latest_trigger(as_of, **rule)  # type: ignore[arg-type]
    if bound.year > 2 and rule["cutoff"] == "none":
        assert due_at(bound - timedelta(days=5), **rule) <= as_of  # type: ignore[arg-type]
