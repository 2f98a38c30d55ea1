"""Deliveries that are not owed any more: of an event type that the endpoint gave up, or of a retired endpoint."""

import time
from typing import Final, NamedTuple

from django.db import connection, transaction

from cleanup_project.base import sqlfiles, walks
from webhooks import lanes, settlement
from webhooks.models import EVERY_TYPE, Endpoint

CHUNK: Final = 1000
AT_ONCE: Final = 10.0  # seconds for which a person's request goes on; the sweep does the rest
Place = tuple[str, int]  # (due_at, id)
START: Final[Place] = ("infinity", 2**63 - 1)


class Unowed(NamedTuple):
    """One delivery to cancel."""

    delivery_id: int
    event_id: int
    lane_id: int | None
    type: str


def unowed(endpoint_id: int, why: str = "", *, seconds: float = float("inf")) -> int:
    """Cancel what the endpoint is not owed any more, in chunks, and let its lanes go on; returns how many.

    `why` is a person's reason, which each cancelled delivery then carries. After `seconds` no further chunk is begun. What is
    being sent at the moment is left alone: it may still be delivered, and then is; if it fails, a later pass cancels it. Call
    it outside of transactions.
    """
    cancelled, ends = 0, time.monotonic() + seconds
    after: Place | None = START
    while after is not None:
        number, after = cancel_some(endpoint_id, after, why)
        cancelled += number
        if time.monotonic() >= ends:
            break
    if cancelled:
        settlement.ring()
    return cancelled


def cancel_some(endpoint_id: int, after: Place, why: str = "") -> tuple[int, Place | None]:
    """Look at a chunk; returns how many of it were cancelled, and where to go on."""
    with transaction.atomic(durable=True):
        endpoint = Endpoint.objects.select_for_update(no_key=True).get(pk=endpoint_id)
        found, after_them = page(endpoint, after)
        ended = end(endpoint, found, f": {why}" if why else ".") if found else set()
    # In a transaction of its own: two that end at once each see the other open.
    settlement.settle(each.event_id for each in found if each.delivery_id in ended)
    return len(ended), after_them


def page(endpoint: Endpoint, after: Place) -> tuple[list[Unowed], Place | None]:
    """Of the next chunk of pending deliveries, those to cancel; and where to go on: None at the end.

    Under the endpoint's lock nobody subscribes again meanwhile.
    """
    if endpoint.retired_at is None and endpoint.event_types == [EVERY_TYPE]:
        return [], None
    due, last = after
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "unowed.sql"),
            {
                "endpoint": endpoint.pk,
                "due": due,
                "last": last,
                "types": [] if endpoint.retired_at else endpoint.event_types,
                "limit": CHUNK,
            },
        )
        rows = cursor.fetchall()
    found = [Unowed(pk, event_id, lane_id, type) for pk, event_id, lane_id, type, _due, is_unowed in rows if is_unowed]
    return found, (rows[-1][4], rows[-1][0]) if len(rows) == CHUNK else None


def end(endpoint: Endpoint, found: list[Unowed], why: str) -> set[int]:
    """Cancel those that are pending still, under the locks of their lanes; returns them."""
    lanes.lock(each.lane_id for each in found if each.lane_id is not None)
    with connection.cursor() as cursor:
        # Under the endpoint's lock nobody claims them; one whose lease had expired may have been recorded meanwhile.
        cursor.execute(
            "SELECT id FROM webhooks_delivery WHERE id = ANY(%s::bigint[]) AND state = 'pending' "
            "ORDER BY id FOR NO KEY UPDATE",
            [[each.delivery_id for each in found]],
        )
        free = {delivery for (delivery,) in cursor}
        ended = [each for each in found if each.delivery_id in free]
        cursor.execute(
            "UPDATE webhooks_delivery d SET state = 'cancelled', cancel_reason = e.reason, lease_until = NULL, "
            "finished_at = statement_timestamp() FROM unnest(%s::bigint[], %s::text[]) AS e (id, reason) WHERE d.id = e.id",
            [[each.delivery_id for each in ended], [reason(endpoint, each.type) + why for each in ended]],
        )
    lanes.promote((endpoint.pk, each.lane_id) for each in ended if each.lane_id is not None)
    return free


def reason(endpoint: Endpoint, type: str) -> str:
    return "The endpoint is retired" if endpoint.retired_at else f"The endpoint does not subscribe to {type} any more"


def forgotten() -> int:
    """Finish what a crash, or a delivery that was being sent, left over at any endpoint; returns how many were cancelled."""
    narrow = Endpoint.objects.exclude(retired_at=None, event_types=[EVERY_TYPE]).order_by("pk")
    cancelled = walks.walk_each("unowed", list(narrow.values_list("pk", flat=True)), START, look)
    if cancelled:
        settlement.ring()
    return cancelled


def look(endpoint_id: int, after: Place) -> tuple[int, Place | None]:
    """Cancel what there is of a chunk; where there is nothing, lock nothing."""
    found, after_them = page(Endpoint.objects.get(pk=endpoint_id), after)
    return cancel_some(endpoint_id, after) if found else (0, after_them)
