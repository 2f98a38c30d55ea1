"""Legal holds: place one, and the one answer to "is it held?"."""

import time
from collections.abc import Sequence
from datetime import datetime

from django.conf import settings
from django.db import connection, transaction

from cleanup_project.base import audit, clock, queue, sqlfiles, tenancy
from cleanup_project.base.arrays import array
from cleanup_project.base.models import User
from retention import control
from retention.eligibility import HoldFacts
from retention.exceptions import NotPermitted
from retention.models import Bucket, HoldPrefix, LegalHold, Tenant
from retention.models.scope import ANY_CLASS
from retention.prefixes import minimal
from webhooks.outbox import Notice, emit

# First key of the two-part advisory locks by which placing a hold waits for claims that began before it.
LOCK_CLASS = 0x484F4C44
UNPARK_CHUNK = 1000
# Where the planner knows little of what is parked, it takes a chunk for all there is, and reads and sorts all for each chunk.
IN_THE_ORDER_OF_AN_INDEX = "SET LOCAL enable_sort = off"


def share_lock(tenant_id: int) -> None:
    """Take the tenant's hold lock, shared, until the transaction ends.

    A statement of its own: the hold check must be a later statement, whose snapshot then shows every hold that committed
    before the lock was granted. In one statement, or under REPEATABLE READ, the snapshot would be older than the lock.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(%s, %s)", [LOCK_CLASS, tenant_id])


def place(
    *,
    tenant: Tenant,
    matter: str,
    title: str,
    authority: str,
    reason: str,
    buckets: list[Bucket],
    prefixes: list[str],
    retention_classes: list[str],
    by: User,
    custodian: str = "",
    stored_from: datetime | None = None,
    stored_to: datetime | None = None,
) -> LegalHold:
    """Place a hold; it is in force when this returns, for present and for later objects alike.

    Raises NotPermitted, or Django's ValidationError with a message for each field.
    """
    if not by.has_perm("base.place_hold"):
        raise NotPermitted(f"{by} may not place legal holds: that needs the role Compliance.")
    tenancy.permit(by, tenant, NotPermitted)
    hold = LegalHold(
        tenant=tenant,
        matter=matter,
        title=title,
        authority=authority,
        reason=reason,
        custodian=custodian,
        bucket_ids=[bucket.pk for bucket in buckets],
        prefixes=prefixes,
        retention_classes=retention_classes,
        stored_from=stored_from,
        stored_to=stored_to,
        placed_by=by,
    )
    hold.full_clean()
    with transaction.atomic():
        hold.save()
        HoldPrefix.objects.bulk_create(
            HoldPrefix(hold=hold, bucket=bucket, prefix=prefix) for bucket in buckets for prefix in minimal(prefixes)
        )
        control.bump(tenant.pk)
        audit.record(action="hold.placed", subject=hold, by=by, reason=reason, after={"matter": matter})
        queue.wake(settings.HOLD_PLACED_TASK, hold.pk)
        emit(tenant.code, [notice(hold)], at=clock.now())
    return hold


def notice(hold: LegalHold) -> Notice:
    """That a hold was placed, in numbers: its matter, its words and its prefixes may name people."""
    classes = [each for each in hold.retention_classes if each != ANY_CLASS]
    data = {
        "buckets": len(hold.bucket_ids),
        "dated": bool(hold.stored_from or hold.stored_to),
        "hold": hold.pk,
        "prefixes": len(hold.prefixes),
        "retention_classes": len(classes),
    }
    return Notice(type="hold.placed", subject=f"hold:{hold.pk}", name=str(hold.pk), data=data)


def in_force(tenant_id: int) -> list[HoldFacts]:
    """Every hold in force for a tenant, as `eligibility.judge` takes them."""
    return [facts_of(hold) for hold in LegalHold.objects.in_force().filter(tenant_id=tenant_id).order_by("pk")]


def facts_of(hold: LegalHold) -> HoldFacts:
    return HoldFacts(
        id=hold.pk,
        matter=hold.matter,
        tenant_id=hold.tenant_id,
        bucket_ids=tuple(hold.bucket_ids),
        prefixes=tuple(hold.prefixes),
        retention_classes=tuple(hold.retention_classes),
        stored_from=hold.stored_from,
        stored_to=hold.stored_to,
    )


def covering(ids: Sequence[int], tenant_id: int, *, without: int = 0) -> dict[int, list[int]]:
    """Which holds in force, but for `without`, cover each of a tenant's versions; only those that any covers."""
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "covering.sql"), {"ids": array(ids), "tenant": tenant_id, "without": without}
        )
        return dict(cursor.fetchall())


def unpark_released(*, until: float | None = None) -> bool:
    """Give back to the scans what released holds had parked, in short transactions; whether nothing of it is left.

    `until`: time.monotonic() after which no further one begins.
    """
    while unpark_chunk():
        if until is not None and time.monotonic() >= until:
            return False
    return True


def unpark_chunk() -> bool:
    """Give a chunk back; False where there was none. Waits for whoever does the same beside."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(IN_THE_ORDER_OF_AN_INDEX)
        cursor.execute(sqlfiles.read(__file__, "unpark.sql"), {"chunk": UNPARK_CHUNK})
        more: bool = cursor.fetchone()[0]
        cursor.execute("SET LOCAL enable_sort TO DEFAULT")  # for a caller's transaction goes on
        return more
