"""Attempts that ended some time ago, written as dispatch would have written them then."""

from datetime import timedelta

from django.db import connection

from tests.webhooks.world import notice, tell
from webhooks.models import Delivery, Endpoint

HOUR = 3600.0


def deliveries(endpoint: Endpoint, count: int) -> list[int]:
    """The ids of so many pending deliveries, each of a subject of its own."""
    already = Delivery.objects.count()
    tell(*(notice(f"subject-{already + number}", f"{already + number}") for number in range(count)))
    return list(endpoint.deliveries.order_by("-id").values_list("pk", flat=True)[:count])[::-1]


def attempt(delivery: int, failure_class: str, ago: float, *, is_probe: bool = False, error: str = "") -> None:
    """`ago` is in seconds."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO webhooks_deliveryattempt (delivery_id, endpoint_id, number, token, is_probe, started_at, finished_at,
                url, key_ids, peer, failure_class, error, milliseconds)
            SELECT d.id, d.endpoint_id, n.next, n.next, %s, now() - %s, now() - %s, 'https://receiver.example/', '{}',
                '', %s, %s, 5
            FROM webhooks_delivery d, (
                SELECT coalesce(max(token), 0) + 1 AS next FROM webhooks_deliveryattempt WHERE delivery_id = %s
            ) n WHERE d.id = %s
            """,
            [is_probe, timedelta(seconds=ago), timedelta(seconds=ago), failure_class, error, delivery, delivery],
        )
        # Its token is taken: the next claim goes on from here.
        cursor.execute("UPDATE webhooks_delivery SET lease_token = lease_token + 1 WHERE id = %s", [delivery])
