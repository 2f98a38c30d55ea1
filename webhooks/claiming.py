"""Claim: lease lane heads and write their attempts, committed before anything is sent."""

import time
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import structlog
from django.db import connection, transaction

from cleanup_project.base import sqlfiles, vault
from webhooks import health
from webhooks.limits import IN_FLIGHT, LEASE
from webhooks.models import Endpoint
from webhooks.sender import Sending

log = structlog.get_logger(__name__)
CATCH_UP: Final = 5  # deliveries a second of an endpoint that was enabled again, while what was held goes out


@dataclass(frozen=True, slots=True)
class Claimed:
    """One delivery under lease; `lane_id` is None for a redelivery. `clock` is the database's, less this process's
    monotonic one, in seconds. `held`: it waits since before the endpoint was enabled. `is_unwell`: as of `Taken`.
    """

    sending: Sending
    keys: Sequence[bytes]
    event_row: int
    endpoint_id: int
    lane_id: int | None
    token: int
    attempts: int
    clock: float
    is_probe: bool
    is_unwell: bool
    duplicate_is_success: bool
    held: bool


def claim(threads: int, rounds: int, running: Counter[int], answered: Set[int]) -> list[Claimed]:
    """Lease as many heads as can be sent in so many rounds, of each endpoint its share.

    `running`: what was leased before. Of an endpoint that has not `answered` yet, no more than its threads can send at once:
    what one that is dead would hold, the others could send.
    """
    if rounds < 1:
        return []
    due = due_endpoints()
    busy = max(1, len(set(due) | set(+running)))
    at_once = threads_of_one(threads, busy)
    quick = max(1, len((set(due) | set(+running)) & answered))
    left = rounds * threads - sum(number for each, number in running.items() if each not in answered)
    claimed = list[Claimed]()
    for endpoint_id in due:
        share = min(IN_FLIGHT, rounds * at_once, max(1, left // quick)) if endpoint_id in answered else at_once
        room = min(share - running[endpoint_id], threads * rounds - running.total() - len(claimed))
        # A claim costs a commit: it waits until half of the share is free.
        if room > 0 and 2 * room >= share:
            claimed += claim_from(endpoint_id, room)
    return claimed


def threads_of_one(threads: int, busy: int) -> int:
    """How many of the threads one of so many busy endpoints may have at most.

    One alone gets three quarters, and each of several its share, but never less than a quarter: so one that is dead leaves
    threads to the others, also to those that become due a moment later.
    """
    return max(1, threads * 3 // 4 if busy == 1 else threads // min(busy, 4))


def due_endpoints() -> list[int]:
    """Where something can be sent now, the longest due first, so that nobody's turn never comes."""
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "due_endpoints.sql"))
        return [endpoint_id for (endpoint_id,) in cursor]


def claim_from(endpoint_id: int, limit: int) -> list[Claimed]:
    """Lease due heads of one endpoint and write their attempts, committed. Another worker at the same endpoint: none.

    While its circuit is open, one head is let through as the probe, once its time has come.
    """
    with transaction.atomic(durable=True):
        taken = take(endpoint_id)
        if taken is None:
            return []
        # A later statement than the lock: what the worker before us took is seen.
        room = room_of(taken)
        try:
            keys = [vault.unseal(bytes(each)) for each in room.sealed]
        except vault.VaultError as error:
            # Nobody's delivery is charged for what is our own fault.
            log.error("endpoint has a secret that cannot be opened", endpoint=endpoint_id, error=str(error))
            endpoint = Endpoint.objects.get(pk=endpoint_id)
            health.sender_trouble(endpoint_id, f"a signing secret of {endpoint} cannot be opened: {error}")
            health.wait_for_us(endpoint_id)
            return []
        limit = min(limit, room.limit)
        if limit < 1 or not keys:
            return []
        claimed = lease(taken, limit, room.key_ids, keys)
        if claimed and taken.circuit_step:
            health.probing(endpoint_id)
        if taken.resumed_at is not None and not any(each.held for each in claimed) and (claimed or not room.in_flight):
            health.caught_up(endpoint_id)
        return claimed


class Taken(NamedTuple):
    """An endpoint under its lock, as take.sql finds it. `is_unwell`: its next success has something to tell of it."""

    id: int
    url: str
    event_types: list[str]
    duplicate_is_success: bool
    circuit_step: int
    concurrency: int
    resumed_at: datetime | None
    is_unwell: bool


class Room(NamedTuple):
    """How many more may be claimed, how many are in flight, and the secrets that sign now, the newest first."""

    limit: int
    in_flight: int
    key_ids: list[int]
    sealed: list[bytes]


def take(endpoint_id: int) -> Taken | None:
    """Lock an endpoint that may be sent to; None where it may not, or where somebody else has it."""
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "take.sql"), {"endpoint": endpoint_id, "full": IN_FLIGHT})
        row = cursor.fetchone()
        return row and Taken(*row)


def room_of(taken: Taken) -> Room:
    catching_up = taken.resumed_at is not None
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "room.sql"), {"endpoint": taken.id, "lease": LEASE, "catching_up": catching_up}
        )
        in_flight, within_a_second, key_ids, sealed = cursor.fetchone()
    limit = taken.concurrency - in_flight
    if taken.circuit_step:
        limit = min(limit, 1)
    if catching_up:
        limit = min(limit, CATCH_UP - within_a_second)
    return Room(limit, in_flight, key_ids, sealed)


def lease(taken: Taken, limit: int, key_ids: list[int], keys: Sequence[bytes]) -> list[Claimed]:
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "claim.sql"),
            {
                "endpoint": taken.id,
                "keys": key_ids,
                "limit": limit,
                "lease": LEASE,
                "url": without_query(taken.url),
                "probe": taken.circuit_step > 0,
                "types": taken.event_types,
                "resumed": taken.resumed_at,
            },
        )
        return [claimed_of(taken, keys, row) for row in cursor.fetchall()]


def claimed_of(taken: Taken, keys: Sequence[bytes], row: Sequence[Any]) -> Claimed:
    delivery, attempt, number, event_id, body, event_row, lane, token, attempts, seconds, held = row
    return Claimed(
        sending=Sending(delivery, attempt, number, taken.url, event_id, bytes(body)),
        keys=keys,
        event_row=event_row,
        endpoint_id=taken.id,
        lane_id=lane,
        token=token,
        attempts=attempts,
        clock=float(seconds) - time.monotonic(),
        is_probe=taken.circuit_step > 0,
        is_unwell=taken.is_unwell,
        duplicate_is_success=taken.duplicate_is_success,
        held=held,
    )


def without_query(url: str) -> str:
    """A query may hold a secret of the receiver's; attempts are kept for years."""
    address, mark, _ = url.partition("?")
    return address + (f"{mark}..." if mark else "")
