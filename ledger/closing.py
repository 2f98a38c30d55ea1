"""Bring runs to their end: withdraw what may not be done, close a run whose counts add up, mark what was notified."""

from typing import Any, Final

import structlog
from django.db import connection, transaction
from django.db.models import Count
from django.db.models.functions import Now

from cleanup_project.base import alarms, audit, sqlfiles, walks
from ledger import notices
from ledger.models import CleanupCommand, CleanupRun
from ledger.runs import COUNTS
from ledger.states import CommandState, RunState

CHUNK: Final = 1000

log = structlog.get_logger(__name__)


def withdraw() -> int:
    """Withdraw commands of cancelled runs, and of superseded revisions, in chunks; returns how many."""
    total = 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sqlfiles.read(__file__, "withdraw.sql"), {"limit": CHUNK})
            number: int = cursor.fetchone()[0]
        total += number
        if number < CHUNK:
            return total


def close_drained() -> int:
    """Close every run that has come to its end; returns how many."""
    draining = CleanupRun.objects.filter(state=RunState.DRAINING).order_by("pk").values_list("pk", flat=True)
    return sum(close(pk) for pk in draining)


def close(run_id: int) -> bool:
    """Close a run if all is published, nothing is ready, and its counts add up. A mismatch keeps it open and alarms."""
    with transaction.atomic():
        run = CleanupRun.objects.select_for_update(no_key=True).get(pk=run_id)
        if run.state != RunState.DRAINING or run.parts.filter(number__gt=run.published_parts).exists():
            return False
        if CleanupCommand.objects.filter(run=run, state=CommandState.READY).exists():
            return False
        counts = counts_of(run)
        if sum(counts.values()) != run.item_count:
            alarms.notice(COUNTS, run, mismatch(run, counts))
            log.error("counts do not add up", run=run.key, items=run.item_count, counts=counts)
            return False
        alarms.clear(COUNTS, run)
        CleanupRun.objects.filter(pk=run.pk).update(
            state=RunState.CLOSED, counts=counts, ended_at=Now(), end_reason="drained"
        )
        audit.record(action="run.closed", subject=run, by=None, after={"counts": counts})
        notices.tell(run.tenant_id, [notices.closed(run, RunState.CLOSED, counts)])
    log.info("run closed", run=run.key, counts=counts)
    return True


def mismatch(run: CleanupRun, counts: dict[str, int]) -> str:
    told = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in sorted(counts.items()))
    return (
        f"The manifest has {run.item_count or 0:,} items, and {sum(counts.values()):,} have an outcome: {told or 'none'}. "
        "The run stays open. Compare its commands and what was left out with its items, and report it."
    )


def counts_of(run: CleanupRun) -> dict[str, int]:
    """The run's items by what became of them, counted from the commands themselves; what was left out is withdrawn, and
    what a reviewer took out before is exempt."""
    found: dict[str, int] = {}
    rows: Any = CleanupCommand.objects.filter(run=run).values_list("state", "outcome").annotate(number=Count("pk"))
    for state, outcome, number in rows.order_by():
        name = outcome or state
        found[name] = found.get(name, 0) + number
    skipped = run.skipped.count()
    if skipped:
        found["withdrawn"] = found.get("withdrawn", 0) + skipped
    exempt = run.dispositions.count()
    if exempt:
        found["exempt"] = exempt
    return found


def notify() -> int:
    """Mark deleted commands whose events are settled as notified; returns how many.

    Runs in a transaction after the deliveries' own: inside of it, two deliveries that end at once would each see the
    other open.
    """
    return walks.walk("deleted", 0, notify_some)


def notify_some(after: int) -> tuple[int, int | None]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "notify.sql"), {"after": after, "limit": CHUNK})
        read, marked, last = cursor.fetchone()
    return marked, last if read == CHUNK else None
