"""How old the oldest of each thing may become, and why: the one place of these numbers, for tiles, metrics and alarms."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from cleanup_project.base import heartbeats, limits
from ledger import schedule
from webhooks import metrics

AT_ONCE: Final = timedelta(0)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)


class Deadline(NamedTuple):
    """From which age on it is to be watched (a tile is amber), and overdue (red, an alarm), and why; None: never."""

    watch: timedelta
    overdue: timedelta | None
    because: str

    def tone(self, age: timedelta) -> str:
        if self.overdue is not None and age >= self.overdue:
            return "overdue"
        return "waiting" if age >= self.watch else ""


WRITTEN: Final[dict[str, Deadline]] = {
    "Stopped": Deadline(AT_ONCE, 4 * HOUR, "Nothing of what it names is destroyed until somebody lifts it: half a shift."),
    "Oldest eligible": Deadline(
        2 * DAY, 7 * DAY, "A daily schedule and a day of cooling-off take two days; a week is every schedule missed."
    ),
    "Queue age": Deadline(
        5 * MINUTE, timedelta(seconds=limits.QUEUE_RETRY),
        "The sweep rings each minute for what is due; after 15 minutes even a lost message has come again.",
    ),
    "In quarantine": Deadline(AT_ONCE, DAY, "Nothing in it goes on by itself: a person looks within a day."),
    "Runs to approve": Deadline(AT_ONCE, DAY, "Nothing of them is destroyed before: a person looks within a day."),
    "Last scan": Deadline(
        schedule.GRACE, 30 * MINUTE,
        "How long a slot of a schedule may wait for its answer; the tick comes each minute, and any worker makes it.",
    ),
    "Missed slots": Deadline(AT_ONCE, None, "Each was answered as its policy says; it stays here for a day."),
    "Last tick": Deadline(
        2 * MINUTE, schedule.GRACE, "It comes each minute; a slot that is answered within 5 minutes is on time."
    ),
    "Workers": Deadline(
        heartbeats.ALIVE, timedelta(seconds=limits.STALL),
        "A supervisor looks every few seconds, and starts a cluster anew that has stood still for 4 minutes.",
    ),
    "Oldest snapshot": Deadline(
        timedelta(seconds=limits.TASK_TIMEOUT), 5 * MINUTE,
        "No task of ours lasts longer than 3 minutes; what reads as of long ago keeps dead rows, and makes claims slow.",
    ),
    "Oldest listing": Deadline(
        AT_ONCE, None, "Beyond the limit of its bucket nothing there is found eligible; amber from three quarters of it on."
    ),
    "Oldest undelivered": Deadline(
        HOUR, DAY, "Of an endpoint that fails, somebody is told after an hour and after a day; it is disabled after five."
    ),
    "Sending": Deadline(
        timedelta(seconds=metrics.LATE / 2), timedelta(seconds=metrics.LATE),
        "What is due goes out at once; after two minutes an alarm is raised.",
    ),
    "Endpoints in trouble": Deadline(AT_ONCE, DAY, "Their events wait until they answer or somebody enables them."),
}  # fmt: skip
# Where the number is not ours alone: the alarm of late deliveries is webhooks' own, and has it written there.
FIXED: Final = frozenset({"Sending"})


def code(name: str) -> str:
    """As settings, metrics and alarms call the deadline of that name: "Queue age" is `queue-age`."""
    return name.lower().replace(" ", "-")


def with_settings(written: Mapping[str, Deadline], chosen: Mapping[str, timedelta]) -> dict[str, Deadline]:
    """The deadlines, overdue as the setting DEADLINES says. Raises ImproperlyConfigured where it names none of them."""
    settable = {code(name): name for name, each in written.items() if each.overdue is not None and name not in FIXED}
    unknown = sorted(chosen.keys() - settable.keys())
    if unknown:
        raise ImproperlyConfigured(
            f"DEADLINES names {', '.join(unknown)}, which is no deadline; there are {', '.join(settable)}."
        )
    found = dict(written)
    for name, overdue in chosen.items():
        each = found[settable[name]]
        found[settable[name]] = each._replace(overdue=overdue, watch=min(each.watch, overdue / 2))
    return found


DEADLINES: Final = with_settings(WRITTEN, settings.DEADLINES)
OVERDUE: Final = {code(name): each.overdue for name, each in DEADLINES.items() if each.overdue is not None}
