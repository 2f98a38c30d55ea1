"""Execution windows: when they are open, when they open next, on days on which the clocks are changed too."""

from datetime import UTC, datetime, time, timedelta

import pytest

from retention.windows import Window, window

BERLIN = "Europe/Berlin"


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def made(hours: str, days: str = "", zone: str = "UTC") -> Window:
    start, end = map(time.fromisoformat, hours.split("-"))
    found = window(days, start, end, zone)
    assert found is not None
    return found


def test_without_days_and_times_there_is_no_window() -> None:
    assert window("", None, None, "UTC") is None


@pytest.mark.parametrize(
    ("hours", "days", "at", "closes"),
    [
        ("01:00-05:00", "", "2026-01-05 01:00", "2026-01-05 05:00"),
        ("01:00-05:00", "", "2026-01-05 04:59:59", "2026-01-05 05:00"),
        ("01:00-05:00", "", "2026-01-05 05:00", None),
        ("01:00-05:00", "", "2026-01-05 00:59:59", None),
        # Monday 5 January; over midnight, the day on which it opens counts.
        ("22:00-04:00", "mon", "2026-01-05 22:00", "2026-01-06 04:00"),
        ("22:00-04:00", "mon", "2026-01-06 03:59", "2026-01-06 04:00"),
        ("22:00-04:00", "mon", "2026-01-05 03:59", None),
        ("22:00-04:00", "mon", "2026-01-06 22:00", None),
        ("22:00-04:00", "sun,mon", "2026-01-05 03:59", "2026-01-05 04:00"),
        ("00:00-12:00", "tue", "2026-01-06 00:00", "2026-01-06 12:00"),
        ("12:00-00:00", "tue", "2026-01-06 23:59", "2026-01-07 00:00"),
    ],
)
def test_a_window_is_open_from_its_start_to_its_end(hours: str, days: str, at: str, closes: str | None) -> None:
    assert made(hours, days).closes(utc(at)) == (utc(closes) if closes else None)


def test_days_without_times_are_whole_days_where_the_zone_is() -> None:
    weekend = window("sat,sun", None, None, BERLIN)
    assert weekend is not None
    assert weekend.closes(utc("2026-01-02 22:59")) is None
    assert weekend.closes(utc("2026-01-02 23:00")) == utc("2026-01-03 23:00")
    assert weekend.closes(utc("2026-01-04 22:59")) == utc("2026-01-04 23:00")
    assert weekend.opens(utc("2026-01-04 23:00")) == utc("2026-01-09 23:00")


@pytest.mark.parametrize(
    ("hours", "day", "start", "end"),
    [
        # 29 March 2026: at 02:00 it is 03:00. 25 October 2026: at 03:00 it is 02:00.
        ("22:00-04:00", "2026-03-28", "2026-03-28 21:00", "2026-03-29 02:00"),
        ("22:00-04:00", "2026-10-24", "2026-10-24 20:00", "2026-10-25 03:00"),
        ("02:30-05:00", "2026-03-29", "2026-03-29 01:30", "2026-03-29 03:00"),
        ("01:00-02:30", "2026-03-29", "2026-03-29 00:00", "2026-03-29 01:30"),
        ("02:30-03:30", "2026-10-25", "2026-10-25 00:30", "2026-10-25 02:30"),
        ("01:00-02:30", "2026-10-25", "2026-10-24 23:00", "2026-10-25 00:30"),
        ("09:00-17:00", "2026-03-28", "2026-03-28 08:00", "2026-03-28 16:00"),
        ("09:00-17:00", "2026-03-29", "2026-03-29 07:00", "2026-03-29 15:00"),
        # Of this hour nothing is there: it opens a day later.
        ("02:00-03:00", "2026-03-29", "2026-03-30 00:00", "2026-03-30 01:00"),
    ],
)
def test_a_window_follows_the_clocks_of_its_zone(hours: str, day: str, start: str, end: str) -> None:
    found = made(hours, zone=BERLIN)
    before = found.instant(datetime.fromisoformat(day).date(), time()) - timedelta(seconds=1)
    begins = before if found.closes(before) else found.opens(before)
    begins = begins if begins >= before + timedelta(seconds=1) else found.opens(found.closes(before) or before)
    assert (begins, found.closes(begins)) == (utc(start), utc(end))
    assert found.closes(utc(start) - timedelta(microseconds=1)) is None
    assert found.closes(utc(end)) is None


@pytest.mark.parametrize(
    ("days", "at", "opens"),
    [
        ("", "2026-01-05 03:00", "2026-01-05 03:00"),
        ("", "2026-01-05 05:00", "2026-01-06 01:00"),
        ("mon", "2026-01-05 00:00", "2026-01-05 01:00"),
        ("mon", "2026-01-05 05:00", "2026-01-12 01:00"),
        ("fri,wed", "2026-01-07 05:00", "2026-01-09 01:00"),
    ],
)
def test_a_closed_window_opens_next_on_one_of_its_days(days: str, at: str, opens: str) -> None:
    assert made("01:00-05:00", days).opens(utc(at)) == utc(opens)


def test_a_weekly_window_that_a_change_of_clocks_swallows_opens_a_week_later() -> None:
    assert made("02:00-03:00", "sun", BERLIN).opens(utc("2026-03-28 12:00")) == utc("2026-04-05 00:00")
