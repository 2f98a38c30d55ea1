"""The control row: workers read its epoch before each request, and whoever forbids something raises it."""

from django.db import connection, transaction
from django.db.models.functions import Now

from cleanup_project.base import audit
from cleanup_project.base.models import User
from retention.exceptions import NotPermitted, RetentionError
from retention.models import Control, Tenant


def bump(tenant_id: int) -> None:
    """Raise the epoch, in the transaction of the act that forbids or changes something."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO retention_control AS c (tenant_id, epoch) VALUES (%s, 1) "
            "ON CONFLICT (tenant_id) DO UPDATE SET epoch = c.epoch + 1",
            [tenant_id],
        )


def read(tenant_id: int) -> tuple[int, bool]:
    """(epoch, whether the stop switch is on)."""
    row = Control.objects.filter(pk=tenant_id).values_list("epoch", "stopped_at").first()
    return (row[0], row[1] is not None) if row else (0, False)


def stop(*, tenant: Tenant, by: User, reason: str) -> None:
    """Press the stop switch: from now on no request of this tenant is sent. What was sent may still be executed."""
    if not by.has_perm("base.stop"):
        raise NotPermitted(f"{by} may not press the stop switch: no role of theirs has the right stop.")
    if not reason.strip():
        raise RetentionError("State a reason for stopping.")
    with transaction.atomic():
        bump(tenant.pk)
        changed = Control.objects.filter(pk=tenant.pk, stopped_at=None).update(stopped_at=Now(), stopped_reason=reason)
        if not changed:
            raise RetentionError(f"{tenant} is stopped already.")
        audit.record(action="stop.on", subject=tenant, by=by, reason=reason)


def lift(*, tenant: Tenant, by: User, reason: str) -> None:
    """Lift the stop switch; what is due goes on."""
    if not by.has_perm("base.rearm"):
        raise NotPermitted(f"{by} may not lift the stop switch: no role of theirs has the right rearm.")
    if not reason.strip():
        raise RetentionError("State a reason for going on.")
    with transaction.atomic():
        bump(tenant.pk)
        changed = Control.objects.filter(pk=tenant.pk, stopped_at__isnull=False).update(
            stopped_at=None, stopped_reason=""
        )
        if not changed:
            raise RetentionError(f"{tenant} is not stopped.")
        audit.record(action="stop.off", subject=tenant, by=by, reason=reason)
