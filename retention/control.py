"""What workers read before each request: the epoch of a tenant, and what is stopped. Whoever forbids something raises it.

A stop forbids requests and nothing else: schedules go on opening runs, scans freeze manifests, commands are published, and
what is in doubt is looked at, since none of this destroys anything and all of it is needed to say what is so.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now

from cleanup_project.base import alarms, audit, queue, tenancy
from cleanup_project.base.models import User
from retention.exceptions import NotPermitted, RetentionError
from retention.models import Bucket, RetentionPolicy, StopSwitch, Tenant
from retention.models.control import STOPPED_ALREADY

BUCKET_TRIPPED = "bucket.tripped"  # the alarm of a bucket that the system has stopped


@dataclass(frozen=True, slots=True)
class Stopped:
    """What may not be sent for a tenant now: nothing at all (`whole`), or nothing of these buckets and policies."""

    whole: bool
    buckets: frozenset[int]
    policies: frozenset[int]

    def __bool__(self) -> bool:
        """Whether anything is."""
        return self.whole or bool(self.buckets or self.policies)

    def covers(self, policy_id: int, bucket_ids: Collection[int]) -> bool:
        return self.whole or policy_id in self.policies or not self.buckets.isdisjoint(bucket_ids)


def bump(tenant_id: int) -> None:
    """Raise the epoch, in the transaction of the act that forbids or changes something."""
    bump_each([tenant_id])


def bump_each(tenant_ids: Sequence[int]) -> None:
    """Raise several epochs. Rows are taken in the order of tenants, so that two who raise many never wait for each other."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO retention_control AS c (tenant_id, epoch) "
            "SELECT id, 1 FROM unnest(%s::bigint[]) AS id ORDER BY id "
            "ON CONFLICT (tenant_id) DO UPDATE SET epoch = c.epoch + 1",
            [list(tenant_ids)],
        )


def read(tenant_id: int) -> tuple[int, Stopped]:
    """(epoch, what is stopped), in one statement and so of one instant."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT
                coalesce((SELECT epoch FROM retention_control WHERE tenant_id = %(tenant)s), 0),
                coalesce(bool_or(scope = 'everything' OR tenant_id = %(tenant)s), false),
                coalesce(array_agg(bucket_id) FILTER (WHERE scope = 'bucket'), '{}'),
                coalesce(array_agg(policy_id) FILTER (WHERE scope = 'policy'), '{}')
            FROM retention_stopswitch WHERE lifted_at IS NULL
            """,
            {"tenant": tenant_id},
        )
        epoch, whole, buckets, policies = cursor.fetchone()
    return epoch, Stopped(whole, frozenset(buckets), frozenset(policies))


def press(
    *,
    scope: StopSwitch.Scope,
    by: User | None,
    reason: str,
    tenant: Tenant | None = None,
    bucket: Bucket | None = None,
    policy: RetentionPolicy | None = None,
) -> StopSwitch:
    """Press the stop switch: from now on no request is sent for what it names. What was sent may still be executed.

    `by` None is the system itself. Who decides for some tenants alone stops these or their policies, not what others share.
    Raises NotPermitted, RetentionError where it is stopped already, and Django's
    ValidationError with a message for each field.
    """
    if by is not None and not by.has_perm("base.stop"):
        raise NotPermitted(f"{by} may not press the stop switch: no role of theirs has the right stop.")
    switch = StopSwitch(scope=scope, tenant=tenant, bucket=bucket, policy=policy, pressed_by=by, reason=reason)
    switch.full_clean(validate_constraints=False)
    tenancy.permit(by, switch, NotPermitted)
    try:
        with transaction.atomic():
            switch.save()
            bump_each(concerned(switch))
            audit.record(action="stop.pressed", subject=switch, by=by, reason=reason)
            queue.wake(settings.STOP_PRESSED_TASK, switch.pk)
    except IntegrityError as error:
        if "stop_once" not in str(error):
            raise
        raise RetentionError(STOPPED_ALREADY) from error
    switch.refresh_from_db()
    return switch


def lift(*, switch: StopSwitch, by: User, reason: str) -> StopSwitch:
    """Lift the stop switch; what is due goes on, unless another switch covers it. Re-arms the breaker of a bucket."""
    if not by.has_perm("base.rearm"):
        raise NotPermitted(f"{by} may not lift the stop switch: no role of theirs has the right rearm.")
    tenancy.permit(by, switch, NotPermitted)
    if not reason.strip():
        raise RetentionError("State a reason for going on.")
    with transaction.atomic():
        changed = StopSwitch.objects.active().filter(pk=switch.pk)
        if not changed.update(lifted_at=Now(), lifted_by=by, lift_reason=reason):
            raise RetentionError(f"The switch for {switch} is lifted already.")
        bump_each(concerned(switch))
        if switch.bucket is not None:
            alarms.clear(BUCKET_TRIPPED, switch.bucket)
        audit.record(action="stop.lifted", subject=switch, by=by, reason=reason)
    switch.refresh_from_db()
    return switch


def concerned(switch: StopSwitch) -> list[int]:
    """The tenants of which a switch may stop commands: all of them, for everything and for a bucket."""
    if switch.policy is not None:
        return [switch.policy.tenant_id]
    if switch.tenant_id is not None:
        return [switch.tenant_id]
    return list(Tenant.objects.order_by("pk").values_list("pk", flat=True))
