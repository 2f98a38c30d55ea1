"""Execution windows: the hours of the week in which a policy may destroy, in the time of a place. Pure.

A window opens on each of its days at `start` and closes at the next `end`; without times it is open for whole days. The
clocks of the place decide. Where they are put back, a time that comes twice means the first of the two; where they are put
forward, one that is left out means the instant at which it would have come; what such a day leaves nothing of stays closed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAYS_PATTERN: Final = rf"^(({'|'.join(DAYS)})(,({'|'.join(DAYS)}))*)?$"
DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Window:
    """`days`: of the week, Monday is 0; a window over midnight belongs to the day on which it opens. Zone: an IANA name."""

    days: frozenset[int]
    start: time
    end: time
    zone: str

    def closes(self, at: datetime) -> datetime | None:
        """When the window that is open at this moment closes; None: it is closed. A window is open at its start only."""
        return next((end for start, end in self.around(at) if start <= at < end), None)

    def opens(self, at: datetime) -> datetime:
        """This moment where it is open, else the next one at which it opens."""
        return max(at, next(start for start, end in self.around(at) if at < end))

    def around(self, at: datetime) -> Iterator[tuple[datetime, datetime]]:
        """Openings and closings in UTC, from the day before on: of two weeks, for a week may have none."""
        today = at.astimezone(ZoneInfo(self.zone)).date()
        for number in range(-1, 15):
            day = today + number * DAY
            if day.weekday() in self.days:
                start = self.instant(day, self.start)
                end = self.instant(day if self.start < self.end else day + DAY, self.end)
                if start < end:
                    yield start, end

    def instant(self, day: date, at: time) -> datetime:
        return datetime.combine(day, at, ZoneInfo(self.zone)).astimezone(UTC)


def window(days: str, start: time | None, end: time | None, zone: str) -> Window | None:
    """The window that the fields of a revision state; None: always open."""
    if not days and start is None:
        return None
    named = frozenset(map(DAYS.index, days.split(","))) if days else frozenset(range(7))
    return Window(named, start or time(), end or time(), zone)


@cache
def zones() -> frozenset[str]:
    """The names of zones that this machine knows."""
    return frozenset(available_timezones())
