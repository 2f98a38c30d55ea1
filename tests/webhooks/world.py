"""Endpoints and events in one line each, and what there is of deliveries."""

from typing import Any

from django.db import connection, transaction

from cleanup_project.base import clock
from cleanup_project.base.models import User
from webhooks import endpoints, outbox
from webhooks.models import Delivery, Endpoint
from webhooks.outbox import Emitted, Notice

TENANT = "acme"
TYPE = "media.deleted"


def endpoint(
    by: User, url: str = "https://receiver.example/hook", *, enabled: bool = True, **fields: Any
) -> tuple[Endpoint, str]:
    defaults: dict[str, Any] = {"tenant": TENANT, "name": "Archive", "event_types": ["*"]}
    made, secret = endpoints.create(url=url, by=by, **(defaults | fields))
    return (enabled_without_ping(made) if enabled else made), secret


def enabled_without_ping(made: Endpoint) -> Endpoint:
    """For tests that are not about how endpoints are enabled: by a plain UPDATE, which nobody else may do."""
    Endpoint.objects.filter(pk=made.pk).update(disabled_at=None, disabled_by=None, disabled_reason="")
    made.refresh_from_db()
    return made


def notice(subject: str, name: str, **fields: Any) -> Notice:
    defaults: dict[str, Any] = {"type": TYPE, "data": {"asset": subject, "note": "Grüße"}, "command_key": name}
    return Notice(subject=subject, name=name, **(defaults | fields))


def tell(*notices: Notice, tenant: str = TENANT) -> list[Emitted]:
    """Emit in a transaction of its own."""
    with transaction.atomic():
        return outbox.emit(tenant, notices, at=clock.now())


def assets(count: int, events: int = 1) -> list[Notice]:
    return [notice(f"asset-{asset}", f"{asset}:{event}") for event in range(events) for asset in range(count)]


def sql(statement: str, *parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def make_due() -> None:
    """Let the time until the next attempt pass, and that of pauses and open circuits; what is not a head still waits."""
    sql("UPDATE webhooks_delivery SET due_at = now() WHERE state = 'pending' AND due_at <> 'infinity'")
    sql(
        "UPDATE webhooks_endpoint SET paused_until = NULL, open_until = CASE WHEN circuit_step > 0 THEN now() END "
        "WHERE paused_until > now() OR open_until > now()"
    )


def expire_leases() -> None:
    """Let the lease time pass, for deliveries and for what counts as in flight."""
    sql("UPDATE webhooks_delivery SET lease_until = now() - interval '1 s' WHERE lease_until IS NOT NULL")


def states() -> dict[str, int]:
    found: dict[str, int] = {}
    for state in Delivery.objects.values_list("state", flat=True):
        found[state] = found.get(state, 0) + 1
    return found
