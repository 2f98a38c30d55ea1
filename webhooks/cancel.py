"""Deliveries that are not owed any more: of an event type that the endpoint gave up, or of a retired endpoint."""

import time
from typing import Final, NamedTuple

from django.db import connection, transaction

from cleanup_project.base import sqlfiles
from webhooks import lanes, settlement
from webhooks.models import EVERY_TYPE, Endpoint

CHUNK: Final = 1000
AT_ONCE: Final = 10.0  # seconds for which a person's request goes on; the sweep does the rest
START: Final = ("infinity", 2**63 - 1)


class Unowed(NamedTuple):
    """One delivery to cancel; `place` is where the walk goes on after it."""

    delivery_id: int
    event_id: int
    lane_id: int | None
    type: str
    place: str


def unowed(endpoint_id: int, why: str = "", *, seconds: float = float("inf")) -> int:
    """Cancel what the endpoint is not owed any more, in chunks, and let its lanes go on; returns how many.

    `why` is a person's reason, which each cancelled delivery then carries. After `seconds` no further chunk is begun. What is
    being sent at the moment is left alone: it may still be delivered, and then is; if it fails, a later pass cancels it. Call
    it outside of transactions.
    """
    cancelled, after, ends = 0, START, time.monotonic() + seconds
    while not cancelled or time.monotonic() < ends:
        with transaction.atomic(durable=True):
            endpoint = Endpoint.objects.select_for_update(no_key=True).get(pk=endpoint_id)
            found = page(endpoint, after)
            if not found:
                break
            ended = end(endpoint, found, f": {why}" if why else ".")
        # In a transaction of its own: two that end at once each see the other open.
        settlement.settle(each.event_id for each in found if each.delivery_id in ended)
        cancelled += len(ended)
        after = (found[-1].place, found[-1].delivery_id)
    if cancelled:
        settlement.ring()
    return cancelled


def page(endpoint: Endpoint, after: tuple[str, int]) -> list[Unowed]:
    """The next deliveries to cancel. Under the endpoint's lock nobody subscribes again meanwhile."""
    if endpoint.retired_at is None and endpoint.event_types == [EVERY_TYPE]:
        return []
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
        return [Unowed(*row) for row in cursor]


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
    return sum(unowed(endpoint.pk, seconds=AT_ONCE) for endpoint in narrow if page(endpoint, START))
