"""Order within a lane: whoever changes what its head is locks the lane's row first and looks in a later statement.

A redelivery stands in no lane (None): there is nothing to lock for it, and nobody behind it.
"""

from collections.abc import Iterable

from django.db import connection

from cleanup_project.base import sqlfiles


def lock(lane_ids: Iterable[int | None]) -> None:
    """Lock lanes until the transaction ends, in the order in which `outbox.emit` takes them."""
    wanted = sorted({lane for lane in lane_ids if lane is not None})
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT FROM webhooks_lane WHERE id = ANY(%s::bigint[]) ORDER BY tenant, subject FOR NO KEY UPDATE",
            [wanted],
        )


def promote(ends: Iterable[tuple[int, int | None]]) -> int:
    """Make the lowest open delivery of each (endpoint, lane) due, if it is not; returns how many. Under the lanes' locks."""
    places = sorted({(endpoint, lane) for endpoint, lane in ends if lane is not None})
    if not places:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "promote.sql"),
            {"endpoints": [endpoint for endpoint, _ in places], "lanes": [lane for _, lane in places]},
        )
        promoted: int = cursor.rowcount
        return promoted
