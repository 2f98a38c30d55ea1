"""Deliveries go out: claim lane heads, send, record.

The claim commits a lease and a `started` attempt before anything is sent, and nothing is sent inside a transaction. What
came of it is recorded under the lease's token: whoever was overtaken changes nothing. Whatever stops anywhere, the lease
expires, the delivery is sent again under the same event id, and the attempt that stays `started` tells why.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import structlog
from django.db import connection, transaction

from cleanup_project.base import sqlfiles, vault
from webhooks import lanes, retry, sender, settlement
from webhooks.limits import BUDGET, IN_FLIGHT, LEASE, SEND, THREADS
from webhooks.models import Delivery, Endpoint
from webhooks.sender import Answer, Sending

log = structlog.get_logger(__name__)
State = Delivery.State
ROUNDS: Final = 4  # sends that one thread has before it at most
LINGER: Final = 0.1  # seconds from the first answer to the record, which takes along what else has come by then
SETTLED_AT_ONCE: Final = 100
SOON: Final = 8.0  # seconds


@dataclass(slots=True)
class Dispatched:
    """What one dispatch did. `lost` attempts ended under a lease that somebody else had taken over; `more`: work is left."""

    sent: int = 0
    delivered: int = 0
    retried: int = 0
    dead: int = 0
    lost: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True)
class Claimed:
    """One delivery under lease. `clock` is the database's, less this process's monotonic one, in seconds."""

    sending: Sending
    keys: Sequence[bytes]
    event_row: int
    endpoint_id: int
    lane_id: int
    token: int
    attempts: int
    clock: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an answer makes of its delivery; `delay` is set for a retry alone."""

    state: str
    delay: float | None = None


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
    """Wait for a delivery that is due within SOON seconds, rather than leave it to a later sweep; False: there is none."""
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "due_soon.sql"), {"soon": SOON})
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


def claim(threads: int, rounds: int, running: Counter[int]) -> list[Claimed]:
    """Lease as many heads as can be sent in so many rounds. A slow endpoint leaves the others their share of threads."""
    if rounds < 1:
        return []
    due = due_endpoints()
    share = threads * rounds if len(due | set(running)) < 2 else max(1, threads // len(due | set(running)))
    claimed = list[Claimed]()
    for endpoint_id in sorted(due):
        room = min(share - running[endpoint_id], threads * rounds - running.total() - len(claimed))
        # A claim costs a commit: it waits until half of the share is free.
        if room > 0 and 2 * room >= share:
            claimed += claim_from(endpoint_id, room)
    return claimed


def due_endpoints() -> set[int]:
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "due_endpoints.sql"))
        return {endpoint_id for (endpoint_id,) in cursor}


def claim_from(endpoint_id: int, limit: int) -> list[Claimed]:
    """Lease due heads of one endpoint and write their attempts, committed. Another worker at the same endpoint: none."""
    with transaction.atomic(durable=True):
        enabled = Endpoint.objects.enabled().select_for_update(no_key=True, skip_locked=True)
        endpoint = enabled.filter(pk=endpoint_id).first()
        if endpoint is None:
            return []
        try:
            secrets = list(endpoint.secrets.live())
            keys = [vault.unseal(bytes(each.key_encrypted)) for each in secrets]
        except vault.VaultError as error:
            # Nobody's delivery is charged for what is our own fault.
            log.error("endpoint has a secret that cannot be opened", endpoint=endpoint.pk, error=str(error))
            return []
        # Later statements than the lock: what the worker before us took is seen.
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM webhooks_deliveryattempt WHERE endpoint_id = %s AND finished_at IS NULL "
                "AND started_at > now() - %s * interval '1 second'",
                [endpoint_id, LEASE],
            )
            free = min(limit, IN_FLIGHT - cursor.fetchone()[0])
            if free < 1 or not keys:
                return []
            cursor.execute(
                sqlfiles.read(__file__, "claim.sql"),
                {
                    "endpoint": endpoint_id,
                    "keys": [each.pk for each in secrets],
                    "limit": free,
                    "lease": LEASE,
                    "url": without_query(endpoint.url),
                },
            )
            return [claimed_of(endpoint, keys, row) for row in cursor.fetchall()]


def claimed_of(endpoint: Endpoint, keys: Sequence[bytes], row: Sequence[Any]) -> Claimed:
    delivery, attempt, number, event_id, body, event_row, lane, token, attempts, seconds = row
    return Claimed(
        sending=Sending(delivery, attempt, number, endpoint.url, event_id, bytes(body)),
        keys=keys,
        event_row=event_row,
        endpoint_id=endpoint.pk,
        lane_id=lane,
        token=token,
        attempts=attempts,
        clock=float(seconds) - time.monotonic(),
    )


def without_query(url: str) -> str:
    """A query may hold a secret of the receiver's; attempts are kept for years."""
    address, mark, _ = url.partition("?")
    return address + (f"{mark}..." if mark else "")


def outcome_of(claimed: Claimed, answer: Answer) -> Outcome:
    if answer.failure_class == sender.DELIVERED:
        return Outcome(State.DELIVERED)
    delay = retry.delay_after(claimed.attempts + 1, random.random())  # noqa: S311 - spreads load, guards nothing
    return Outcome(State.DEAD) if delay is None else Outcome(State.PENDING, delay)


def record(finished: Sequence[tuple[Claimed, Answer]], total: Dispatched) -> list[int]:
    """Write what came of attempts, and promote what stood behind those that ended; returns the events that were delivered."""
    with transaction.atomic(durable=True):
        lanes.lock(claimed.lane_id for claimed, _ in finished)
        held = lock_held([claimed for claimed, _ in finished])
        written = [
            (claimed, answer, outcome_of(claimed, answer))
            for claimed, answer in finished
            if claimed.sending.delivery_id in held
        ]
        write(written)
        ended = [claimed for claimed, _, outcome in written if outcome.state != State.PENDING]
        lanes.promote((claimed.endpoint_id, claimed.lane_id) for claimed in ended)
    count = Counter(outcome.state for _, _, outcome in written)
    total.sent += len(finished)
    total.delivered += count[State.DELIVERED]
    total.retried += count[State.PENDING]
    total.dead += count[State.DEAD]
    total.lost += len(finished) - len(written)
    tell(written)
    return [claimed.event_row for claimed, _, outcome in written if outcome.state == State.DELIVERED]


def lock_held(claims: Sequence[Claimed]) -> set[int]:
    """Lock the deliveries that are still under their claim's token. The token decides; an expired lease alone does not.

    A record that comes again, after a COMMIT whose answer was lost, finds the lease given back.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT d.id FROM webhooks_delivery d JOIN unnest(%s::bigint[], %s::bigint[]) AS held (id, token) "
            "ON d.id = held.id AND d.lease_token = held.token "
            "WHERE d.state = 'pending' AND d.lease_until IS NOT NULL ORDER BY d.id FOR NO KEY UPDATE OF d",
            [[claimed.sending.delivery_id for claimed in claims], [claimed.token for claimed in claims]],
        )
        return {delivery for (delivery,) in cursor}


def write(written: Sequence[tuple[Claimed, Answer, Outcome]]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "record.sql"),
            {
                "deliveries": [claimed.sending.delivery_id for claimed, _, _ in written],
                "attempts": [claimed.sending.attempt_id for claimed, _, _ in written],
                "states": [outcome.state for _, _, outcome in written],
                "delays": [outcome.delay for _, _, outcome in written],
                "statuses": [answer.status for _, answer, _ in written],
                "classes": [answer.failure_class for _, answer, _ in written],
                "errors": [answer.error for _, answer, _ in written],
                "responses": [answer.response for _, answer, _ in written],
                "milliseconds": [answer.milliseconds for _, answer, _ in written],
            },
        )


def tell(written: Sequence[tuple[Claimed, Answer, Outcome]]) -> None:
    for claimed, answer, outcome in written:
        if outcome.state != State.DELIVERED:
            log.warning(
                "delivery is dead" if outcome.state == State.DEAD else "delivery failed",
                event_id=claimed.sending.event_id,
                endpoint=claimed.endpoint_id,
                attempt=claimed.sending.number,
                failure=answer.failure_class,
                error=answer.error,
            )
