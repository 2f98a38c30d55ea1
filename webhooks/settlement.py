"""An event is settled once nothing of it is owed any more. Whoever waits for that is rung, and looks."""

from collections.abc import Iterable
from typing import Final

from django.conf import settings
from django.db import connection, transaction

from cleanup_project.base import queue

# Of an event `e`: each delivery is delivered, at last by a redelivery, or cancelled, or dead at an endpoint that is retired.
OWES_NOTHING: Final = """NOT EXISTS (
    SELECT FROM webhooks_delivery d
    WHERE d.event_id = e.id AND d.round = 0 AND d.state NOT IN ('delivered', 'cancelled')
        AND NOT EXISTS (
            SELECT FROM webhooks_delivery again
            WHERE again.event_id = e.id AND again.endpoint_id = d.endpoint_id AND again.round > 0
                AND again.state = 'delivered'
        )
        AND NOT (d.state = 'dead' AND EXISTS (
            SELECT FROM webhooks_endpoint p WHERE p.id = d.endpoint_id AND p.retired_at IS NOT NULL
        ))
)"""


def settle(event_ids: Iterable[int]) -> int:
    """Settle those of the events of which nothing is owed any more; returns how many.

    In a transaction of its own, after the one that ended a delivery: two that end at once each see the other open.
    """
    wanted = sorted(set(event_ids))
    if not wanted:
        return 0
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT FROM webhooks_outboxevent WHERE id = ANY(%s::bigint[]) AND settled_at IS NULL "
            "ORDER BY id FOR NO KEY UPDATE",
            [wanted],
        )
        cursor.execute(
            "UPDATE webhooks_outboxevent e SET settled_at = statement_timestamp() "  # noqa: S608 - our own
            f"WHERE e.id = ANY(%s::bigint[]) AND e.settled_at IS NULL AND {OWES_NOTHING}",
            [wanted],
        )
        settled: int = cursor.rowcount
    return settled


def ring() -> None:
    """Say that events were settled: once for many, since whoever is rung looks for all of them."""
    if settings.WEBHOOKS_SETTLED_TASK:
        queue.wake(settings.WEBHOOKS_SETTLED_TASK)
