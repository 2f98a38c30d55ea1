"""Claim: lease lane heads and write their attempts, committed before anything is sent."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
from django.db import connection, transaction

from cleanup_project.base import sqlfiles, vault
from webhooks import health
from webhooks.limits import LEASE
from webhooks.models import Endpoint
from webhooks.sender import Sending

log = structlog.get_logger(__name__)
CATCH_UP: Final = 5  # deliveries a second of an endpoint that was enabled again, while what was held goes out


@dataclass(frozen=True, slots=True)
class Claimed:
    """One delivery under lease; `lane_id` is None for a redelivery. `clock` is the database's, less this process's
    monotonic one, in seconds. `held`: it waits since before the endpoint was enabled.
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
    duplicate_is_success: bool
    held: bool


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
    """Lease due heads of one endpoint and write their attempts, committed. Another worker at the same endpoint: none.

    While its circuit is open, one head is let through as the probe, once its time has come.
    """
    with transaction.atomic(durable=True):
        reachable = Endpoint.objects.reachable().select_for_update(no_key=True, skip_locked=True)
        endpoint = reachable.filter(pk=endpoint_id).first()
        if endpoint is None:
            return []
        try:
            secrets = list(endpoint.secrets.live())
            keys = [vault.unseal(bytes(each.key_encrypted)) for each in secrets]
        except vault.VaultError as error:
            # Nobody's delivery is charged for what is our own fault.
            log.error("endpoint has a secret that cannot be opened", endpoint=endpoint.pk, error=str(error))
            health.sender_trouble(endpoint.pk, f"a signing secret of {endpoint} cannot be opened: {error}")
            return []
        # Later statements than the lock: what the worker before us took is seen.
        in_flight, limit = room_of(endpoint, limit)
        if limit < 1 or not keys:
            return []
        claimed = lease(endpoint, limit, [each.pk for each in secrets], keys)
        if claimed and endpoint.circuit_step:
            health.probing(endpoint.pk)
        if endpoint.resumed_at is not None and not any(each.held for each in claimed) and (claimed or not in_flight):
            health.caught_up(endpoint.pk)
        return claimed


def room_of(endpoint: Endpoint, limit: int) -> tuple[int, int]:
    """(in flight, how many more may be claimed of so many)."""
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "room.sql"), {"endpoint": endpoint.pk, "lease": LEASE})
        in_flight, within_a_second = cursor.fetchone()
    limit = min(limit, endpoint.concurrency - in_flight)
    if endpoint.circuit_step:
        limit = min(limit, 1)
    if endpoint.resumed_at is not None:
        limit = min(limit, CATCH_UP - within_a_second)
    return in_flight, limit


def lease(endpoint: Endpoint, limit: int, key_ids: Sequence[int], keys: Sequence[bytes]) -> list[Claimed]:
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "claim.sql"),
            {
                "endpoint": endpoint.pk,
                "keys": list(key_ids),
                "limit": limit,
                "lease": LEASE,
                "url": without_query(endpoint.url),
                "probe": endpoint.circuit_step > 0,
                "types": endpoint.event_types,
                "details": endpoint.include_keys,
                "resumed": endpoint.resumed_at,
            },
        )
        return [claimed_of(endpoint, keys, row) for row in cursor.fetchall()]


def claimed_of(endpoint: Endpoint, keys: Sequence[bytes], row: Sequence[Any]) -> Claimed:
    delivery, attempt, number, event_id, body, event_row, lane, token, attempts, seconds, held = row
    return Claimed(
        sending=Sending(delivery, attempt, number, endpoint.url, event_id, bytes(body)),
        keys=keys,
        event_row=event_row,
        endpoint_id=endpoint.pk,
        lane_id=lane,
        token=token,
        attempts=attempts,
        clock=float(seconds) - time.monotonic(),
        is_probe=endpoint.circuit_step > 0,
        duplicate_is_success=endpoint.duplicate_is_success,
        held=held,
    )


def without_query(url: str) -> str:
    """A query may hold a secret of the receiver's; attempts are kept for years."""
    address, mark, _ = url.partition("?")
    return address + (f"{mark}..." if mark else "")
