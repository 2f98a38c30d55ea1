"""Repairs what a crash at the wrong moment leaves, lanes without a head and lost settlements; judges what time alone brings,
failing endpoints and late deliveries; and rings for what is due. All in chunks, each in its own short transaction."""

from typing import Final

from django.db import connection, transaction

from cleanup_project.base import queue, sqlfiles, walks
from webhooks import cancel, dispatch, health, lanes, metrics, settlement
from webhooks.models import Endpoint

CHUNK: Final = 1000


def sweep() -> dict[str, int]:
    """What is urgent; returns what was found, by kind."""
    found = {
        "promoted": promote_headless(),
        "failing_endpoints": health.review(),
        "late_endpoints": metrics.watch(),
        "dispatching": len(dispatch.due_endpoints()),
    }
    if found["dispatching"]:
        queue.wake("webhooks.tasks.dispatch")
    return found


def walk() -> dict[str, int]:
    """What takes a look at all that waits to be told, some seconds at a time; returns what was found, by kind."""
    found = {"cancelled": cancel.forgotten(), "settled": walks.walk("unsettled", 0, settle_some)}
    if found["settled"]:
        settlement.ring()
    return found


def promote_headless() -> int:
    """Make the first of every lane due that waits behind nothing."""
    endpoints = Endpoint.objects.order_by("pk").values_list("pk", flat=True)
    return walks.walk_each("headless", list(endpoints), 0, promote_some)


def promote_some(endpoint_id: int, after: int) -> tuple[int, int | None]:
    chunk = waiting(endpoint_id, after)
    headless = [lane for _, lane, is_first in chunk if is_first]
    promoted = 0
    if headless:
        with transaction.atomic():
            lanes.lock(headless)
            promoted = lanes.promote((endpoint_id, lane) for lane in headless)
    return promoted, chunk[-1][0] if len(chunk) == CHUNK else None


def waiting(endpoint_id: int, after: int) -> list[tuple[int, int | None, bool]]:
    """The next chunk of deliveries that are not due at any time: (id, lane, whether it is the first of its lane)."""
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "waiting.sql"), {"endpoint": endpoint_id, "after": after, "limit": CHUNK}
        )
        return list(cursor.fetchall())


def settle_some(after: int) -> tuple[int, int | None]:
    with connection.cursor() as cursor:
        # Looked at before anything is locked: what waits for an endpoint may be very much.
        cursor.execute(
            f"SELECT e.id, {settlement.OWES_NOTHING} FROM webhooks_outboxevent e "  # noqa: S608 - our own
            "WHERE e.settled_at IS NULL AND e.id > %s ORDER BY e.id LIMIT %s",
            [after, CHUNK],
        )
        chunk = cursor.fetchall()
    settled = settlement.settle(event for event, owes_nothing in chunk if owes_nothing)
    return settled, chunk[-1][0] if len(chunk) == CHUNK else None
