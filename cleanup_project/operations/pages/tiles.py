"""The tiles of the dashboard: how old the oldest of each thing is that waits, against a deadline that is written down."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final
from urllib.parse import urlencode

from django.db.models import Max

from cleanup_project.base import display, heartbeats, queue
from cleanup_project.base.modeladmin import list_url
from cleanup_project.base.models import Heartbeat
from cleanup_project.operations.watch import snapshots
from cleanup_project.operations.watch.deadlines import AT_ONCE, DEADLINES
from ledger import causes, schedule
from ledger import vitals as of_ledger
from ledger.causes import Groups
from ledger.models import CleanupCommand, CleanupRun, DeadLetter, ScheduleSlot
from retention import vitals as of_retention
from retention.models import Bucket, StopSwitch
from webhooks import vitals as of_webhooks
from webhooks.models import Delivery, Endpoint

COUNTED: Final = 1000  # above, a number is "more than"


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure. `tone` is empty, waiting or overdue; `url` leads to exactly what it counts, or to the oldest itself."""

    name: str
    value: str
    note: str = ""
    tone: str = ""
    url: str = ""

    @property
    def word(self) -> str:
        """The tone, for whoever sees no colour."""
        return {"waiting": "watch", "overdue": "overdue"}.get(self.tone, "")


@dataclass(frozen=True)
class Looking:
    """Who looks: the applications whose records they may view, their tenants (none: all), and when."""

    sees: frozenset[str]
    codes: Sequence[str]
    now: datetime

    @cached_property
    def quarantine(self) -> Groups:
        """What is open there, counted once."""
        return causes.groups(self.codes)


def tiles(looking: Looking) -> Iterator[Tile]:
    for app, make in TILES:
        if not app or app in looking.sees:
            yield make(looking)


def aged(name: str, since: datetime | None, looking: Looking, note: str, url: str, nothing: str) -> Tile:
    """The age of the oldest, judged by the deadline of that name."""
    if since is None:
        return Tile(name, "none", nothing)
    age = max(looking.now - since, AT_ONCE)
    return Tile(name, display.duration(age), note, DEADLINES[name].tone(age), url)


def numbered(name: str, number: str, oldest: datetime | None, looking: Looking, url: str, nothing: str) -> Tile:
    """How many there are, judged by the age of the oldest."""
    if oldest is None:
        return Tile(name, number, nothing, url=url)
    age = max(looking.now - oldest, AT_ONCE)
    return Tile(name, number, f"the oldest for {display.duration(age)}", DEADLINES[name].tone(age), url)


def capped(number: int) -> str:
    return f"more than {COUNTED:,}" if number > COUNTED else f"{number:,}"


def stopped(looking: Looking) -> Tile:
    times = list(of_retention.switches(looking.codes).values_list("pressed_at", flat=True)[: COUNTED + 1])
    url = list_url(StopSwitch, "?lifted_at__isnull=True")
    return numbered("Stopped", capped(len(times)), min(times, default=None), looking, url, "no stop switch is on")


def eligible(looking: Looking) -> Tile:
    found = of_ledger.eligible(looking.codes)
    if found is None:
        return aged("Oldest eligible", None, looking, "", "", "all that the last scans found is destroyed")
    if found.command_id is not None:
        url, note = display.change_url(CleanupCommand(pk=found.command_id)), "a command that is ready"
    else:
        url, note = display.change_url(CleanupRun(pk=found.run_id)), "in a run that has not published it yet"
    return aged("Oldest eligible", found.since, looking, f"past its retention, not destroyed: {note}", url, "")


def due(looking: Looking) -> Tile:
    found = of_ledger.due(looking.codes)
    url = display.change_url(CleanupCommand(pk=found.command_id)) if found else ""
    note = "the command that is due the longest; what is paused or stopped counts too"
    return aged("Queue age", found.since if found else None, looking, note, url, "no command is due")


def quarantined(looking: Looking) -> Tile:
    found = looking.quarantine
    words = f"{found.number:,}" if found.whole else f"more than {found.number:,}"
    oldest = of_ledger.quarantined_since(looking.codes)
    return numbered("In quarantine", words, oldest, looking, list_url(DeadLetter), "nothing waits for a person")


def approvals(looking: Looking) -> Tile:
    number, since = of_ledger.approvals(looking.codes)
    url = list_url(CleanupRun, "?state__exact=needs_approval")
    return numbered("Runs to approve", f"{number:,}", since, looking, url, "no run waits for a person")


def missed(looking: Looking) -> Tile:
    number, newest = of_ledger.missed(looking.codes)
    since = looking.now - of_ledger.MISSED_WITHIN
    url = list_url(ScheduleSlot, "?" + urlencode({"outcome__exact": "missed", "scheduled_for__gte": since.isoformat()}))
    note = f"in 24 hours, the newest {display.age(newest, looking.now)} ago" if newest else "none in 24 hours"
    return Tile("Missed slots", f"{number:,}", note, DEADLINES["Missed slots"].tone(AT_ONCE) if newest else "", url)


def scan(looking: Looking) -> Tile:
    """Judged by the slot that waits the longest for its answer: how often a policy scans is its own schedule's affair."""
    late = schedule.unanswered(looking.codes)
    if late is not None:
        note = f"a slot of {late.policy} has come, and nobody has answered it"
        return aged("Last scan", late.since, looking, note, display.change_url(late.policy), "")
    last = of_ledger.last_scan(looking.codes)
    if last is None:
        return Tile("Last scan", "none", "no manifest was sealed yet")
    url, age = display.change_url(CleanupRun(pk=last.run_id)), display.age(last.at, looking.now)
    return Tile("Last scan", age, "since a manifest was sealed; every slot has its answer", url=url)


def tick(looking: Looking) -> Tile:
    last = Heartbeat.objects.aggregate(at=Max("last_tick_at"))["at"]
    url = list_url(Heartbeat) if "base" in looking.sees else ""
    if last is None:
        return Tile("Last tick", "never", "no worker has opened runs or swept", "overdue", url)
    return aged("Last tick", last, looking, "ago; it opens runs and has the sweep made", url, "")


def workers(looking: Looking) -> Tile:
    """Of the queue that is worst off."""
    times = [each.seen_at for each in heartbeats.served(queue.all_keys())]
    known = [at for at in times if at is not None]
    url = list_url(Heartbeat) if "base" in looking.sees else ""
    if len(known) < len(times):
        return Tile("Workers", "none", "a queue has no cluster of workers", "overdue", url)
    return aged("Workers", min(known), looking, "since a cluster of each queue was seen", url, "")


def listing(looking: Looking) -> Tile:
    found = of_retention.oldest_listing(looking.codes)
    if found is None:
        return Tile("Oldest listing", "none", "no bucket has a limit")
    url = display.change_url(Bucket(pk=found.bucket_id))
    if found.at is None:
        return Tile("Oldest listing", "never", f"{display.visible(found.bucket)} has not been listed", "overdue", url)
    age, limit = looking.now - found.at, timedelta(hours=found.limit)
    tone = "overdue" if age > limit else "waiting" if age > 0.75 * limit else ""
    note = f"{display.visible(found.bucket)}; its limit is {display.duration(limit)}"
    return Tile("Oldest listing", display.duration(age), note, tone, url)


def undelivered(looking: Looking) -> Tile:
    found = of_webhooks.owed(looking.codes)
    url = display.change_url(Delivery(pk=found.delivery_id)) if found else ""
    note = "since the event that is owed the longest"
    return aged("Oldest undelivered", found.since if found else None, looking, note, url, "everything is acknowledged")


def sending(looking: Looking) -> Tile:
    age = timedelta(seconds=of_webhooks.due_for(looking.codes))
    note = "due, and nobody sends it" if age else "nothing is due that nobody sends"
    url = list_url(Delivery, "?state__exact=pending") if age else ""
    return Tile("Sending", display.duration(age) if age else "on time", note, DEADLINES["Sending"].tone(age), url)


def endpoints(looking: Looking) -> Tile:
    found = of_webhooks.troubled(looking.codes).values_list("failing_since", "disabled_at")
    times = [disabled or failing or looking.now for failing, disabled in found[: COUNTED + 1]]
    url, nothing = list_url(Endpoint, "?trouble=yes"), "every endpoint answers, or has nothing to"
    return numbered("Endpoints in trouble", capped(len(times)), min(times, default=None), looking, url, nothing)


def snapshot(looking: Looking) -> Tile:
    found = snapshots.oldest()
    if not found.seen:
        return Tile("Oldest snapshot", "unknown", "this role of the database may not see what other sessions do")
    return aged(
        "Oldest snapshot", found.since, looking, "a session reads as of then", "", "no session holds one for long"
    )


# Whose records a tile tells of; empty: it tells of the machinery, and everybody may know it.
TILES: Final[tuple[tuple[str, Callable[[Looking], Tile]], ...]] = (
    ("retention", stopped),
    ("ledger", eligible),
    ("ledger", due),
    ("ledger", quarantined),
    ("ledger", approvals),
    ("ledger", scan),
    ("ledger", missed),
    ("webhooks", undelivered),
    ("webhooks", sending),
    ("webhooks", endpoints),
    ("retention", listing),
    ("", tick),
    ("", workers),
    ("", snapshot),
)
