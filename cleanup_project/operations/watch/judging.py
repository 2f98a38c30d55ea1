"""Deadlines become alarms: the oldest of each thing that waits is compared with its deadline, tenant by tenant.

All tenants are looked at together first, so that it costs a few reads while all is well. An alarm is over when the oldest
is well within its deadline again, and not while it goes to and fro about it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import structlog
from django.db import transaction
from django.db.models import Max, Min
from django.db.models.functions import Now

from cleanup_project.base import alarms, clock, display, heartbeats, paginator, queue
from cleanup_project.base.models import Alarm, Heartbeat
from cleanup_project.operations.watch import snapshots
from cleanup_project.operations.watch.deadlines import AT_ONCE, DEADLINES, code
from ledger import schedule
from ledger import vitals as of_ledger
from retention import freshness
from retention import vitals as of_retention
from retention.models import Bucket, Tenant
from webhooks import vitals as of_webhooks

EASED: Final = 0.75  # of its deadline: from there on an alarm is over
JUDGED_WITHIN: Final = 10_000  # milliseconds for each statement: a round has to end within its minute
Oldest = Callable[[Sequence[str]], datetime | None]

log = structlog.get_logger(__name__)


class Watched(NamedTuple):
    """`oldest`: since when the oldest waits, of the tenants with these codes; none: of all. `words`: what is so,
    with `{since}` in them; `do`: what to do.

    `by_tenant`: each tenant is judged for itself; else the installation as a whole. `never`: what to say where nothing is
    known at all, if that is as bad.
    """

    name: str
    oldest: Oldest
    words: str
    do: str
    by_tenant: bool = True
    never: str = ""

    @property
    def kind(self) -> str:
        return f"deadline.{code(self.name)}"


def since(found: of_ledger.Eligible | of_ledger.Due | schedule.Unanswered | of_webhooks.Owed | None) -> datetime | None:
    return found.since if found else None


def served(_codes: Sequence[str]) -> datetime | None:
    """Since when the queue that is worst off has not been served; another cluster of the same queue makes up for one.

    A queue that never was is waited for since there have been clusters of others.
    """
    begun = first_begun()
    times = [each.seen_at or begun for each in heartbeats.served(queue.all_keys())]
    return min((at for at in times if at is not None), default=None)


def ticked(_codes: Sequence[str]) -> datetime | None:
    """When the tick last came; if it never did, since when there have been clusters to make it."""
    last: datetime | None = Heartbeat.objects.aggregate(at=Max("last_tick_at"))["at"]
    return last or first_begun()


def first_begun() -> datetime | None:
    begun: datetime | None = Heartbeat.objects.aggregate(at=Min("started_at"))["at"]
    return begun


def stopped(codes: Sequence[str]) -> datetime | None:
    return of_retention.switches(codes).values_list("pressed_at", flat=True).first()


WATCHED: Final = (
    Watched(
        "Oldest eligible", lambda codes: since(of_ledger.eligible(codes)),
        "What is eligible the longest has been so since {since}, and is still there.",
        "See on the dashboard what it waits for.",
    ),
    Watched(
        "Queue age", lambda codes: since(of_ledger.due(codes)),
        "A command has been due since {since}, and no worker has it.",
        "See whether workers run, and for pauses, stops and closed windows.",
    ),
    Watched(
        "In quarantine", of_ledger.quarantined_since,
        "An entry has been in quarantine since {since}.",
        "Repair its cause, then replay it, or close it without retry.",
    ),
    Watched(
        "Runs to approve", lambda codes: of_ledger.approvals(codes)[1],
        "A run has waited for its approval since {since}.",
        "Its policy opens no other run meanwhile: approve it, or cancel it.",
    ),
    Watched(
        "Last scan", lambda codes: since(schedule.unanswered(codes)),
        "A slot of a schedule came at {since}, and nobody has answered it.",
        "See whether the tick comes, and what the workers log of it.",
    ),
    Watched(
        "Missed slots", lambda codes: of_ledger.missed(codes)[1],
        "The slot of a schedule at {since} was missed.",
        "See Schedule slots for the reason; open a run by hand if one is wanted.",
    ),
    Watched(
        "Oldest undelivered", lambda codes: since(of_webhooks.owed(codes)),
        "An event has been owed to an endpoint since {since}.",
        "See the endpoint's attempts, and tell its owner.",
    ),
    Watched(
        "Stopped", stopped,
        "A stop switch has been on since {since}.",
        "Compliance lifts it when its reason is gone.", by_tenant=False,
    ),
    Watched(
        "Workers", served, "A queue has had no cluster of workers since {since}.",
        "Start `manage.py worker`, or see why it ended; `manage.py doctor` says which queue it is.",
        by_tenant=False, never="No cluster of workers is known.",
    ),
    Watched(
        "Last tick", ticked,
        "No tick has come since {since}.",
        "See whether a cluster serves the queue control.",
        by_tenant=False, never="The tick has never come.",
    ),
    Watched(
        "Oldest snapshot", lambda _codes: snapshots.oldest().since,
        "A session of the database has read as of one instant since {since}.",
        "See pg_stat_activity: a backup ends by itself; end a session that was left open.", by_tenant=False,
    ),
)  # fmt: skip


def judge() -> int:
    """Raise, say anew and clear the alarms of all deadlines; returns how many are open.

    What cannot be judged, or not within JUDGED_WITHIN for each statement, keeps nothing else from it; the next round tries
    again.
    """
    now = clock.now()
    for watched in WATCHED:
        with alone(deadline=watched.name):
            judge_one(watched, now)
    buckets: list[Bucket] = []
    with alone(deadline="Oldest listing"):
        buckets += of_retention.unlisted()
    for bucket in buckets:
        with alone(deadline="Oldest listing", bucket=bucket.pk):
            freshness.review(bucket)
    return Alarm.objects.open().filter(kind__in=[each.kind for each in WATCHED]).count()


@contextmanager
def alone(**what: object) -> Iterator[None]:
    """In a transaction of its own; if it fails, it is logged, and the round goes on."""
    try:
        with transaction.atomic(), paginator.limited(JUDGED_WITHIN):
            yield
    except Exception:
        log.exception("a deadline was not judged", **what)


def judge_one(watched: Watched, now: datetime) -> None:
    limit = DEADLINES[watched.name].overdue or AT_ONCE
    oldest = watched.oldest(())
    if oldest is None and watched.never:
        alarms.notice(watched.kind, None, f"{watched.never} {watched.do}")
    elif oldest is None or now - oldest < EASED * limit:
        Alarm.objects.open().filter(kind=watched.kind).update(cleared_at=Now())
    elif watched.by_tenant:
        for tenant in Tenant.objects.order_by("code"):
            tell(watched, tenant, watched.oldest([tenant.code]), now, limit)
    else:
        tell(watched, None, oldest, now, limit)


def tell(watched: Watched, tenant: Tenant | None, oldest: datetime | None, now: datetime, limit: timedelta) -> None:
    if oldest is None or now - oldest < EASED * limit:
        alarms.clear(watched.kind, tenant)
    elif now - oldest >= limit or alarms.is_open(watched.kind, tenant):
        told = watched.words.format(since=f"{oldest:%Y-%m-%d %H:%M} UTC")
        age = f" That is {display.age(oldest, now)}; the deadline is {display.duration(limit)}." if limit else ""
        alarms.notice(watched.kind, tenant, f"{told}{age} {watched.do}")
