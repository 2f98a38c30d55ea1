"""Whether this process can serve, and whether the work goes on: what `/readyz` answers.

A load balancer asks about the first alone: that workers stand still is no reason to take the pages away on which people
see it.
"""

import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

from django.core.cache import caches
from django.db import Error, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Max

from cleanup_project.base import clock, display, heartbeats, paginator, queue
from cleanup_project.base.models import Heartbeat
from cleanup_project.operations.watch.deadlines import OVERDUE
from ledger import vitals

KEPT: Final = 3  # seconds: however often somebody asks
ANSWERS_WITHIN: Final = 1.0  # seconds
SERVES: Final = frozenset({"database", "migrations"})
_asking: Final = {"serving": threading.Lock(), "working": threading.Lock()}


class Finding(NamedTuple):
    """`words` are for strangers: no names, and what to do where it is not so."""

    subject: str
    fine: bool
    words: str


NO_DATABASE: Final = Finding(
    "database", False, "It has not answered within a second. See that it runs and that DATABASE_URL leads to it."
)


def findings() -> list[Finding]:
    """As of up to KEPT seconds ago. However the work is found, or not found out, what serves is told as it was found."""
    found = asked("serving", serving, [NO_DATABASE])
    if all(each.fine for each in found):
        found = found + asked("working", working, [unread("workers"), unread("queue")])
    return found


def asked(name: str, look: Callable[[], list[Finding]], unknown: list[Finding]) -> list[Finding]:
    """One process asks each question once at a time: a database that hangs holds one thread for it."""
    kept: list[Finding] | None = caches["process"].get(name)
    if kept is not None:
        return kept
    if not _asking[name].acquire(timeout=ANSWERS_WITHIN):
        return unknown
    try:
        kept = look()
        caches["process"].set(name, kept, KEPT)
    finally:
        _asking[name].release()
    return kept


def serving() -> list[Finding]:
    begun = time.monotonic()
    try:
        with transaction.atomic(), paginator.limited(int(1000 * ANSWERS_WITHIN)):
            clock.now()
            if time.monotonic() - begun > ANSWERS_WITHIN:
                return [NO_DATABASE]
            applied = migrated()
    except Error:
        return [NO_DATABASE]
    words = "All are applied." if applied else "Some are not applied. Run `manage.py migrate`."
    return [Finding("database", True, "It answers."), Finding("migrations", applied, words)]


def working() -> list[Finding]:
    return [read("workers", workers), read("queue", due_commands)]


def read(subject: str, check: Callable[[datetime], Finding]) -> Finding:
    try:
        with transaction.atomic(), paginator.limited(int(1000 * ANSWERS_WITHIN)):
            return check(clock.now())
    except Error:
        return unread(subject)


def unread(subject: str) -> Finding:
    return Finding(subject, False, "It could not be read within a second. See what the database is busy with.")


def migrated() -> bool:
    """Whether the database has every table that this code needs. Once it has, it keeps them."""
    if not caches["process"].get("migrated"):
        executor = MigrationExecutor(connection)
        if executor.migration_plan(executor.loader.graph.leaf_nodes()):
            return False
        caches["process"].set("migrated", True, None)
    return True


def workers(now: datetime) -> Finding:
    if any(each.clusters == 0 for each in heartbeats.served(queue.all_keys())):
        words = "Of a queue none has been seen for a minute. Start `manage.py worker`, or see its log."
        return Finding("workers", False, words)
    ticked = Heartbeat.objects.aggregate(at=Max("last_tick_at"))["at"]
    if ticked is None or now - ticked > OVERDUE["last-tick"]:
        return Finding("workers", False, "No tick has come. See that `manage.py worker` serves the queue control.")
    return Finding("workers", True, "Each queue has a cluster, and the tick comes.")


def due_commands(now: datetime) -> Finding:
    due = vitals.due()
    if due is not None and now - due.since > OVERDUE["queue-age"]:
        limit = display.duration(OVERDUE["queue-age"])
        words = f"A command has been due for more than {limit}. See Queue age on the dashboard: workers, pauses, stops."
        return Finding("queue", False, words)
    return Finding("queue", True, "Nothing has been due for too long.")
