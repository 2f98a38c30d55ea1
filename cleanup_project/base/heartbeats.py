"""The pulse of each cluster of workers: written by its own processes as they work, and by the supervisor that watches it.

A process of a cluster knows its row by the environment that the supervisor gave it; any other process has none.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import structlog
from django.db import Error
from django.db.models import F, QuerySet
from django.db.models.functions import Coalesce, Now

from cleanup_project.base.models import Heartbeat

log = structlog.get_logger(__name__)

VARIABLE: Final = "CLUSTER_HEARTBEAT"
FORGOTTEN_AFTER: Final = timedelta(days=1)


def task_started(*, is_tick: bool) -> None:
    with tolerated():
        own().update(last_start_at=Now(), **({"last_tick_at": Now()} if is_tick else {}))


def task_ended() -> None:
    with tolerated():
        own().update(last_end_at=Now(), unacked_since=Coalesce(F("unacked_since"), Now()))


def acknowledged() -> None:
    with tolerated():
        own().update(last_ack_at=Now(), unacked_since=None)


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
