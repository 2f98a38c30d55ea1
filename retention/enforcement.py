"""Where runs may destroy. Absent means dry run: one prefix of one bucket comes first. The only place that writes it."""

from django.db import transaction
from django.db.models import Model
from django.db.models.functions import Now

from cleanup_project.base import audit, tenancy
from cleanup_project.base.models import User
from retention import control
from retention.exceptions import NotPermitted, RetentionError
from retention.models import Bucket, Enforcement, EnforcementRequest, Tenant

Decision = EnforcementRequest.Decision


def request(*, tenant: Tenant, bucket: Bucket, prefix: str, by: User, reason: str) -> EnforcementRequest:
    """Ask to let runs of the tenant destroy under this prefix. Nothing changes until another person approves.

    Raises NotPermitted, RetentionError where it is on already, or Django's ValidationError, also while a request for the
    same prefix is pending.
    """
    require(by, "request enforcement", tenant)
    require_reason(reason, "asking for enforcement")
    row = EnforcementRequest(tenant=tenant, bucket=bucket, prefix=prefix, requested_by=by, reason=reason)
    with transaction.atomic():
        # The tenant's row orders two people who ask for, or decide about, the same prefix.
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)
        row.full_clean()
        refuse_if_on(row)
        row.save()
        audit.record(action="enforcement.requested", subject=row, by=by, reason=reason)
    return row


def approve(*, request: EnforcementRequest, by: User, reason: str) -> Enforcement:
    """Switch enforcement on as asked for, by another person than who asked."""
    with transaction.atomic():
        row = decide(request, by, Decision.APPROVED, reason)
        refuse_if_on(row)
        enforcement = Enforcement.objects.create(
            request=row,
            tenant=row.tenant,
            bucket=row.bucket,
            prefix=row.prefix,
            requested_by=row.requested_by,
            approved_by=by,
            reason=row.reason,
        )
        audit.record(
            action="enforcement.on",
            subject=enforcement,
            by=by,
            reason=reason,
            after={"requested_by": row.requested_by.get_username(), "request": row.pk},
        )
    return enforcement


def deny(*, request: EnforcementRequest, by: User, reason: str) -> EnforcementRequest:
    """Turn a request down; the prefix stays as it is."""
    with transaction.atomic():
        row = decide(request, by, Decision.DENIED, reason)
        audit.record(action="enforcement.denied", subject=row, by=by, reason=reason)
    return row


def decide(request: EnforcementRequest, by: User, decision: Decision, reason: str) -> EnforcementRequest:
    require(by, "decide about enforcement", request)
    require_reason(reason, "the decision")
    Tenant.objects.select_for_update(no_key=True).get(pk=request.tenant_id)
    row = EnforcementRequest.objects.select_related("tenant", "bucket", "requested_by").get(pk=request.pk)
    if row.requested_by_id == by.pk:
        raise NotPermitted(f"Enforcement of {row} was requested by {by}: a second person must decide.")
    changed = EnforcementRequest.objects.filter(pk=row.pk, decision=Decision.PENDING).update(
        decision=decision, decided_by=by, decided_at=Now(), decision_reason=reason
    )
    if not changed:
        raise RetentionError(f"Enforcement of {row} has been {row.get_decision_display()} already.")
    row.refresh_from_db()
    return row


def refuse_if_on(request: EnforcementRequest) -> None:
    place = {"tenant": request.tenant, "bucket": request.bucket, "prefix": request.prefix}
    if Enforcement.objects.filter(**place, switched_off_at=None).exists():
        raise RetentionError(f"Enforcement of {request} is on already.", field="prefix")


def switch_off(*, row: Enforcement, by: User, reason: str) -> None:
    """Back to dry runs under this prefix; narrowing takes one person."""
    require(by, "switch enforcement off", row)
    require_reason(reason, "switching enforcement off")
    with transaction.atomic():
        if not Enforcement.objects.filter(pk=row.pk, switched_off_at=None).update(switched_off_at=Now()):
            raise RetentionError(f"Enforcement of {row} is off already.")
        control.bump(row.tenant_id)
        audit.record(action="enforcement.off", subject=row, by=by, reason=reason)


def require(by: User, words: str, about: Model) -> None:
    if not by.has_perm("base.publish_policy"):
        raise NotPermitted(f"{by} may not {words}: no role of theirs has the right publish_policy.")
    tenancy.permit(by, about, NotPermitted)


def require_reason(reason: str, words: str) -> None:
    if not reason.strip():
        raise RetentionError(f"State a reason for {words}.")


def switched_on(tenant_id: int) -> list[tuple[int, str]]:
    """The (bucket id, prefix) pairs under which runs of the tenant may destroy."""
    rows = Enforcement.objects.filter(tenant_id=tenant_id, switched_off_at=None)
    return list(rows.values_list("bucket_id", "prefix"))
