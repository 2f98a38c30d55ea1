"""The pulse of each cluster of workers: written by its own processes as they work, and by the supervisor that watches it.

A process of a cluster knows its row by the environment that the supervisor gave it; any other process has none.
"""

import os
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import structlog
from django.db import Error, transaction
from django.db.models import Count, F, Max, Q, QuerySet
from django.db.models.functions import Coalesce, Now

from cleanup_project.base.models import Heartbeat

log = structlog.get_logger(__name__)

VARIABLE: Final = "CLUSTER_HEARTBEAT"
ALIVE: Final = timedelta(minutes=1)  # a supervisor looks every few seconds
FORGOTTEN_AFTER: Final = timedelta(days=1)
LIVING: Final = Q(stopped_at=None, seen_at__gt=Now() - ALIVE)


class Served(NamedTuple):
    """How many clusters serve a queue at present, and when any was last seen; None: never, as far as is remembered."""

    queue: str
    clusters: int
    seen_at: datetime | None


def task_started(*, is_tick: bool) -> None:
    with tolerated():
        own().update(last_start_at=Now(), **({"last_tick_at": Now()} if is_tick else {}))


def task_ended() -> None:
    with tolerated():
        own().update(last_end_at=Now(), unacked_since=Coalesce(F("unacked_since"), Now()))


def acknowledged() -> None:
    with tolerated():
        own().update(last_ack_at=Now(), unacked_since=None)


def begin(key: str) -> Heartbeat:
    """A new row for a cluster of this host, in place of those of its queue that nobody looks after any more."""
    host = socket.gethostname()
    ended = (
        Q(stopped_at__isnull=False) | Q(seen_at__lt=Now() - FORGOTTEN_AFTER) | Q(host=host, seen_at__lt=Now() - ALIVE)
    )
    with transaction.atomic():
        replaced = Heartbeat.objects.filter(ended, queue=key)
        ticked_at = replaced.aggregate(at=Max("last_tick_at"))["at"]
        replaced.delete()
        return Heartbeat.objects.create(host=host, queue=key, last_tick_at=ticked_at)


def end(row: Heartbeat) -> None:
    """The cluster has stopped in order."""
    Heartbeat.objects.filter(pk=row.pk).update(stopped_at=Now(), pid=None, unacked_since=None)


def forget(*, but: Collection[str]) -> None:
    """Remove what is left of other queues, which nobody is to serve any more."""
    Heartbeat.objects.filter(seen_at__lt=Now() - FORGOTTEN_AFTER).exclude(queue__in=but).delete()


def begin_again(row: Heartbeat, reason: str) -> Heartbeat:
    """The same row, for the cluster that replaces one that died."""
    changed = Heartbeat.objects.filter(pk=row.pk).update(
        pid=None,
        started_at=Now(),
        seen_at=Now(),
        unacked_since=None,
        restarts=F("restarts") + 1,
        restart_reason=reason,
    )
    return Heartbeat.objects.get(pk=row.pk) if changed else begin(row.queue)


def seen(row: Heartbeat, pid: int) -> None:
    Heartbeat.objects.filter(pk=row.pk).update(seen_at=Now(), pid=pid)


def served(keys: Collection[str]) -> list[Served]:
    """How each of these queues is served."""
    rows = Heartbeat.objects.filter(queue__in=keys).order_by().values_list("queue")
    found = {each[0]: Served(*each) for each in rows.annotate(n=Count("pk", filter=LIVING), at=Max("seen_at"))}
    return [found.get(key, Served(key, 0, None)) for key in keys]


def is_alone(row: Heartbeat) -> bool:
    """Whether no other cluster serves the same queue at present."""
    others = Heartbeat.objects.filter(LIVING, queue=row.queue).exclude(pk=row.pk)
    return not others.exists()


def has_begun(row: Heartbeat) -> bool:
    """Whether the cluster has begun a task since it was started."""
    return Heartbeat.objects.filter(pk=row.pk, last_start_at__gt=F("started_at")).exists()


def is_quiet(row: Heartbeat, longer_than: timedelta) -> bool:
    """Whether the cluster has been up for so long without beginning any task."""
    before = Now() - longer_than
    begun_none = Q(last_start_at=None) | Q(last_start_at__lt=before)
    return Heartbeat.objects.filter(begun_none, pk=row.pk, started_at__lt=before).exists()


def is_unacknowledged(row: Heartbeat, longer_than: timedelta) -> bool:
    """Whether tasks of the cluster have ended, and so long after that none was acknowledged."""
    return Heartbeat.objects.filter(pk=row.pk, unacked_since__lt=Now() - longer_than).exists()


def ticked(within: timedelta) -> bool:
    """Whether the tick has begun anywhere."""
    return Heartbeat.objects.filter(last_tick_at__gte=Now() - within).exists()


def own() -> QuerySet[Heartbeat]:
    """The row of the cluster that this process belongs to, if any."""
    number = os.environ.get(VARIABLE)
    return Heartbeat.objects.filter(pk=number) if number else Heartbeat.objects.none()


@contextmanager
def tolerated() -> Iterator[None]:
    """No task fails for want of a heartbeat."""
    try:
        yield
    except Error as error:
        log.warning("heartbeat not written", error=str(error))
