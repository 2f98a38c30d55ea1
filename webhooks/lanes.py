"""Order within a lane: whoever changes what its head is locks the lane's row first and looks in a later statement."""

from collections.abc import Iterable

from django.db import connection

from cleanup_project.base import sqlfiles


def lock(lane_ids: Iterable[int]) -> None:
    """Lock lanes until the transaction ends, in the order in which `outbox.emit` takes them."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT FROM webhooks_lane WHERE id = ANY(%s::bigint[]) ORDER BY tenant, subject FOR NO KEY UPDATE",
            [sorted(set(lane_ids))],
        )


def promote(ends: Iterable[tuple[int, int]]) -> int:
    """Make the lowest open delivery of each (endpoint, lane) due, if it is not; returns how many. Under the lanes' locks."""
    endpoints, lanes = columns(ends)
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "promote.sql"), {"endpoints": endpoints, "lanes": lanes})
        promoted: int = cursor.rowcount
        return promoted


def columns(pairs: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
    ordered = sorted(set(pairs))
    return [one for one, _ in ordered], [other for _, other in ordered]
