"""Work through what is due in one bucket: reserve, claim, execute, settle, until nothing is due or the budget is over."""

import gc
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import structlog
from django.db import InterfaceError, OperationalError, connection, transaction

from cleanup_project.base import limits, queue, sqlfiles
from ledger import breaker, claim, pace
from ledger.batch import Batch
from ledger.execute import Stores, execute
from ledger.models import CleanupRun, Turn
from ledger.outcomes import Verdict
from ledger.settle import Settled, settle
from ledger.states import RunState
from retention.models import Bucket
from retention.storage import store_for

SLOTS: Final = 10  # drains at a time in one bucket
LOCK_CLASS: Final = 0x44524E00  # first key of the two-part advisory locks of a bucket's slots; the slot is added
SETTLE_AGAIN: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)  # seconds; within the lease
SOON: Final = 4.0  # seconds
OBJECTS: Final = 50_000  # between two rounds of the collector

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Drained:
    """What one drain did. `more`: it ended by its budget or the bucket's rate, not because nothing was due."""

    claimed: int = 0
    commands: int = 0
    gone: int = 0
    late: int = 0
    paused: str = ""
    more: bool = False

    def add(self, settled: Settled) -> None:
        self.commands += settled.commands
        self.gone += settled.gone
        self.late += settled.late


def drain(
    bucket_id: int,
    *,
    budget_seconds: float = limits.DRAIN_BUDGET,
    stores: Stores = store_for,
    progress: Callable[[Drained], object] = lambda drained: None,
) -> Drained:
    """Drain one bucket. At most SLOTS drains share it; one too many does nothing."""
    until = time.monotonic() + budget_seconds
    done = Drained()
    keep_what_is_loaded()
    with slot(bucket_id) as free, structlog.contextvars.bound_contextvars(bucket=bucket_id):
        idle = set[int]()  # tenants that had a turn, and nothing that may go on: this drain leaves them alone
        empty, tenants = 0, Turn.objects.filter(bucket=bucket_id).count()
        while free and empty <= tenants:  # else nobody has had a command that may go on, however long it was waited for
            if time.monotonic() >= until:
                done.more = True
                break
            before = done.claimed
            going_on = step(bucket_id, done, stores, idle)
            if not going_on and (done.paused or done.more or not wait_for_due(bucket_id, until, idle)):
                break
            empty = empty + 1 if done.claimed == before else 0
            progress(done)
    if done.claimed:
        log.info("drained", commands=done.commands, gone=done.gone, late=done.late, paused=done.paused)
    return done


def wait_for_due(bucket_id: int, until: float, idle: Collection[int]) -> bool:
    """Wait for a command that is due within SOON seconds, rather than leave it to a later sweep; False: there is none."""
    parameters: dict[str, Any] = {"bucket": bucket_id, "soon": SOON, "idle": list(idle)}
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "due_soon.sql"), parameters)
        (seconds,) = cursor.fetchone()
    if seconds is None or time.monotonic() + seconds >= until:
        return False
    time.sleep(max(0.0, seconds))
    return True


def step(bucket_id: int, done: Drained, stores: Stores, idle: set[int]) -> bool:
    """One turn: False where the bucket should be left alone now. A tenant whose turn was for nothing becomes idle."""
    bucket = Bucket.objects.get(pk=bucket_id)
    turn = claim.next_turn(bucket_id, idle)
    if turn is None:
        return False
    size = min(claim.BATCH, max(1, bucket.keys_per_second))
    if not pace.reserve(bucket_id, size):
        done.more = True
        return False
    batch = claim.claim(bucket_id, *turn, bucket.settle_seconds, size)
    targets = sum(len(each.targets) for each in batch.commands)
    pace.correct(bucket_id, targets - size)
    done.claimed += batch.claimed
    if not batch.claimed:
        idle.add(batch.tenant_id)
    if not batch.commands:
        return True
    executed = execute(batch, stores)
    done.add(settle_surely(batch, executed.verdicts))
    breaker.judge(bucket_id, {each.command.run_id for each in executed.verdicts if each.is_tried})
    if executed.throttled:
        pace.slow_down(bucket_id)
    else:
        pace.speed_up(bucket)
    if executed.pause is not None:
        done.paused = f"{executed.pause.kind}: {executed.pause.code} {executed.pause.message}".strip()
        log.error("bucket left alone", reason=done.paused)
        return False
    return True


@cache
def keep_what_is_loaded() -> None:
    """Take what the process has loaded out of the collector's rounds, of which a batch sets off some, 50 ms each; and have
    fewer of them, since a batch makes tens of thousands of objects and drops them all.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(OBJECTS)


def settle_surely(batch: Batch, verdicts: Sequence[Verdict]) -> Settled:
    """Settle, and where the database went away, again: whether the lost COMMIT had counted, settling finds out itself."""
    for waiting in SETTLE_AGAIN:
        try:
            return settle(batch, verdicts)
        except (OperationalError, InterfaceError) as error:
            log.warning("settling again", error=str(error).strip())
            connection.close()
            time.sleep(waiting)
    return settle(batch, verdicts)


@contextmanager
def slot(bucket_id: int) -> Iterator[bool]:
    """One of the bucket's slots, as a session lock, which a dying worker gives back by itself; False: all are taken."""
    taken = None
    with connection.cursor() as cursor:
        for number in range(SLOTS):
            cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [LOCK_CLASS + number, bucket_id])
            if cursor.fetchone()[0]:
                taken = number
                break
    try:
        yield taken is not None
    finally:
        if taken is not None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [LOCK_CLASS + taken, bucket_id])


def after(bucket_id: int, *, more: bool) -> None:
    """Ring for what follows a drain: another, where work is left, and the runs that wait for their commands' end."""
    with transaction.atomic():
        if more:
            queue.wake("ledger.tasks.drain", bucket_id)
        for pk in CleanupRun.objects.filter(state=RunState.DRAINING).order_by("pk").values_list("pk", flat=True):
            queue.wake("ledger.tasks.publish", pk)


def due_buckets() -> list[int]:
    """Buckets in which commands are due, the one whose last turn is longest ago first."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT t.bucket_id FROM ledger_turn t
            WHERE EXISTS (
                SELECT FROM unnest(ARRAY[0, 1, 2]::smallint[]) AS p(priority)
                JOIN ledger_cleanupcommand c ON c.state = 'ready' AND c.bucket_id = t.bucket_id
                    AND c.tenant_id = t.tenant_id AND c.priority = p.priority AND c.due_at <= now()
                    AND (c.lease_until IS NULL OR c.lease_until < now())
            )
            GROUP BY t.bucket_id ORDER BY min(t.last_turn)
            """
        )
        return [row[0] for row in cursor.fetchall()]
