"""Deliveries go out: claim lane heads, send, record.

The claim commits a lease and a `started` attempt before anything is sent, and nothing is sent inside a transaction. What
came of it is recorded under the lease's token: whoever was overtaken changes nothing. Whatever stops anywhere, the lease
expires, the delivery is sent again under the same event id, and the attempt that stays `started` tells why.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

import structlog
from django.db import OperationalError, connection

from cleanup_project.base import sqlfiles
from webhooks import settlement
from webhooks.claiming import CATCH_UP, Claimed, claim, claim_from, due_endpoints
from webhooks.limits import BUDGET, SEND, THREADS
from webhooks.recording import Dispatched, record
from webhooks.sender import Answer
from webhooks.sending import senders

__all__ = ["Dispatched", "claim_from", "dispatch", "due_endpoints", "record"]

log = structlog.get_logger(__name__)
ROUNDS: Final = 4  # sends that one thread has before it at most
SETTLED_AT_ONCE: Final = 500
SOON: Final = 8.0  # seconds


def dispatch(
    *, budget_seconds: float = BUDGET, threads: int = THREADS, progress: Callable[[int], object] = lambda attempts: None
) -> Dispatched:
    """Send what is due until nothing is, or until no further attempt could end within the budget."""
    ends = time.monotonic() + budget_seconds
    total, delivered, more = Dispatched(), list[int](), False
    with senders(threads) as sending:
        while True:
            rounds = min(ROUNDS, int((ends - time.monotonic()) / SEND))
            sending.add(claim(threads, rounds, sending.load, sending.answered))
            if not sending.load:
                waited, more = wait_for_retry(ends)
                if not waited:
                    break
                continue
            finished = sending.finished()
            delivered += record_all(finished, total)
            if len(delivered) >= SETTLED_AT_ONCE:
                settlement.settle(delivered)
                delivered.clear()
            progress(len(finished))
    settlement.settle(delivered)
    if total.delivered:
        settlement.ring()
    total.more = more or (rounds < 1 and bool(due_endpoints()))
    return total


def record_all(finished: Sequence[tuple[Claimed, Answer]], total: Dispatched) -> list[int]:
    """Record; where the database refuses, in halves, so that a lock which somebody keeps costs no other answer its record."""
    try:
        return record(finished, total)
    except OperationalError as error:
        if len(finished) > 1:
            half = len(finished) // 2
            return record_all(finished[:half], total) + record_all(finished[half:], total)
        ((claimed, _),) = finished
        log.warning("answer could not be recorded", delivery=claimed.sending.delivery_id, error=str(error))
        total.lost += 1
        return []


def wait_for_retry(ends: float) -> tuple[bool, bool]:
    """Wait for a delivery that may be sent within SOON seconds, rather than leave it to a later sweep.

    Returns whether it has waited, and, where it has not, whether there is one for which no time is left.
    """
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "due_soon.sql"), {"soon": SOON, "gap": 1 / CATCH_UP})
        (seconds,) = cursor.fetchone()
    if seconds is None:
        return False, False
    if time.monotonic() + seconds + SEND >= ends:
        return False, True
    time.sleep(seconds)
    return True, False
