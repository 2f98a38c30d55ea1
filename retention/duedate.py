"""When a retention period ends: cut-off, then period, in PostgreSQL's interval arithmetic and in UTC.

29 February plus one year is 28 February: the day is clamped to the month's end, the time of day stays.
`sql/due_at.sql` is the same rule for the database.
"""

from calendar import monthrange
from datetime import UTC, datetime, timedelta
from typing import Final

MONTHS_IN: Final = {"months": 1, "years": 12}
DAYS_IN: Final = {"days": 1, "weeks": 7}
CUTOFF_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}

# PostgreSQL and Python disagree beyond the year 9999; such a due date is as good as never.
FAR_FUTURE: Final = datetime(9999, 12, 31, tzinfo=UTC)

# A clamped day moves a due date back by at most three days against exact subtraction.
CLAMP_SLACK: Final = timedelta(days=4)


def add_months(moment: datetime, months: int) -> datetime:
    """`moment` plus calendar months, the day clamped to the month's end; FAR_FUTURE where the calendar ends."""
    index = moment.year * 12 + moment.month - 1 + months
    year, month = divmod(index, 12)
    if year > 9998:
        return FAR_FUTURE
    day = min(moment.day, monthrange(year, month + 1)[1])
    return moment.replace(year=year, month=month + 1, day=day)


def add_period(moment: datetime, number: int, unit: str) -> datetime:
    if unit in MONTHS_IN:
        return add_months(moment, number * MONTHS_IN[unit])
    days = number * DAYS_IN[unit]
    return FAR_FUTURE if days > (FAR_FUTURE - moment).days else moment + timedelta(days=days)


def cut_off(moment: datetime, cutoff: str) -> datetime:
    """The first instant of the next month, quarter or year; the moment itself without a cut-off."""
    if cutoff == "none":
        return moment
    return add_months(period_start(moment, cutoff), CUTOFF_MONTHS[cutoff])


def period_start(moment: datetime, cutoff: str) -> datetime:
    """The first instant of the month, quarter or year that contains the moment."""
    months = CUTOFF_MONTHS[cutoff]
    first = (moment.month - 1) // months * months + 1
    return moment.replace(month=first, day=1, hour=0, minute=0, second=0, microsecond=0)


def due_at(trigger: datetime, *, number: int, unit: str, cutoff: str) -> datetime:
    """When the retention of something triggered then ends: `eligible_since`."""
    return add_period(cut_off(trigger.astimezone(UTC), cutoff), number, unit)


def latest_trigger(as_of: datetime, *, number: int, unit: str, cutoff: str) -> datetime:
    """No later trigger can be due at `as_of`: the bound of an index scan, a few days generous for months and years."""
    months = number * MONTHS_IN.get(unit, 0)
    days = number * DAYS_IN.get(unit, 0)
    as_of = as_of.astimezone(UTC)
    if months >= (as_of.year - 1) * 12 or days >= (as_of - datetime(2, 1, 1, tzinfo=UTC)).days:
        return datetime(1, 1, 1, tzinfo=UTC)
    bound = add_months(as_of, -months) + CLAMP_SLACK if months else as_of - timedelta(days=days)
    return bound if cutoff == "none" else period_start(bound, cutoff)
