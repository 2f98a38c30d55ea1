"""Where runs may destroy. Absent means dry run: one prefix of one bucket comes first."""

from django.db import transaction
from django.db.models.functions import Now

from cleanup_project.base import audit
from cleanup_project.base.models import User
from retention import control
from retention.exceptions import NotPermitted, RetentionError
from retention.models import Bucket, Enforcement, Tenant


def switch_on(
    *, tenant: Tenant, bucket: Bucket, prefix: str, requested_by: User, approved_by: User, reason: str
) -> Enforcement:
    """Let runs of the tenant destroy under this prefix. Takes two people with the right to publish policies."""
    for person in (requested_by, approved_by):
        if not person.has_perm("base.publish_policy"):
            raise NotPermitted(f"{person} may not widen enforcement: no role of theirs has the right publish_policy.")
    if requested_by.pk == approved_by.pk:
        raise NotPermitted("Widening enforcement takes two people; the approver must be another one.")
    if not reason:
        raise RetentionError("State a reason for widening enforcement.")
    row = Enforcement(
        tenant=tenant, bucket=bucket, prefix=prefix, requested_by=requested_by, approved_by=approved_by, reason=reason
    )
    row.full_clean()
    with transaction.atomic():
        row.save()
        audit.record(
            action="enforcement.on",
            subject=row,
            by=approved_by,
            reason=reason,
            after={"requested_by": requested_by.get_username()},
        )
    return row


def switch_off(*, row: Enforcement, by: User, reason: str) -> None:
    """Back to dry runs under this prefix; narrowing takes one person."""
    if not by.has_perm("base.publish_policy"):
        raise NotPermitted(f"{by} may not change enforcement: no role of theirs has the right publish_policy.")
    with transaction.atomic():
        if not Enforcement.objects.filter(pk=row.pk, switched_off_at=None).update(switched_off_at=Now()):
            raise RetentionError(f"Enforcement of {row} is off already.")
        control.bump(row.tenant_id)
        audit.record(action="enforcement.off", subject=row, by=by, reason=reason)


def switched_on(tenant_id: int) -> list[tuple[int, str]]:
    """The (bucket id, prefix) pairs under which runs of the tenant may destroy."""
    rows = Enforcement.objects.filter(tenant_id=tenant_id, switched_off_at=None)
    return list(rows.values_list("bucket_id", "prefix"))
