"""Deliveries go out: claim lane heads, send, record.

The claim commits a lease and a `started` attempt before anything is sent, and nothing is sent inside a transaction. What
came of it is recorded under the lease's token: whoever was overtaken changes nothing. Whatever stops anywhere, the lease
expires, the delivery is sent again under the same event id, and the attempt that stays `started` tells why.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Final

from django.db import connection

from cleanup_project.base import sqlfiles
from webhooks import sender, settlement
from webhooks.claiming import CATCH_UP, Claimed, claim, claim_from, due_endpoints
from webhooks.limits import BUDGET, SEND, THREADS
from webhooks.recording import Dispatched, record
from webhooks.sender import Answer

__all__ = ["Dispatched", "claim_from", "dispatch", "due_endpoints", "record"]

ROUNDS: Final = 4  # sends that one thread has before it at most
LINGER: Final = 0.1  # seconds from the first answer to the record, which takes along what else has come by then
SETTLED_AT_ONCE: Final = 100
SOON: Final = 8.0  # seconds


def dispatch(
    *, budget_seconds: float = BUDGET, threads: int = THREADS, progress: Callable[[int], object] = lambda attempts: None
) -> Dispatched:
    """Send what is due until nothing is, or until no further attempt could end within the budget."""
    ends = time.monotonic() + budget_seconds
    total, delivered = Dispatched(), list[int]()
    running = dict[Future[Answer], Claimed]()
    with sender.session(threads) as through, pool_of(threads) as pool:
        while True:
            rounds = min(ROUNDS, int((ends - time.monotonic()) / SEND))
            for claimed in claim(threads, rounds, Counter(each.endpoint_id for each in running.values())):
                running[pool.submit(post, through, claimed)] = claimed
            if not running:
                if not wait_for_retry(ends):
                    break
                continue
            wait(running, return_when=FIRST_COMPLETED)
            finished, _ = wait(running, timeout=LINGER)
            delivered += record([(running.pop(each), each.result()) for each in finished], total)
            if len(delivered) >= SETTLED_AT_ONCE:
                settlement.settle(delivered)
                delivered.clear()
            progress(len(finished))
    settlement.settle(delivered)
    if total.delivered:
        settlement.ring()
    total.more = rounds < 1 and bool(due_endpoints())
    return total


def wait_for_retry(ends: float) -> bool:
    """Wait for a delivery that may be sent within SOON seconds, rather than leave it to a later sweep; False: none."""
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "due_soon.sql"), {"soon": SOON, "gap": 1 / CATCH_UP})
        (seconds,) = cursor.fetchone()
    if seconds is None or time.monotonic() + seconds + SEND >= ends:
        return False
    time.sleep(seconds)
    return True


@contextmanager
def pool_of(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that only send. After an error what has not begun is not begun; its lease expires."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="webhook")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def post(through: sender.Connections, claimed: Claimed) -> Answer:
    timestamp = int(claimed.clock + time.monotonic())
    return sender.send(through, claimed.sending, claimed.keys, timestamp)
