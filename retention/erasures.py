"""The revision under which an urgent erasure destroys: written and published at once, for the list that two people agreed on.

It takes no part in retention. Other objects that its scope would cover stay with the policies that govern them.
"""

from collections.abc import Sequence
from typing import Final

from cleanup_project.base import audit, clock
from cleanup_project.base.models import User
from retention import control
from retention.models import PolicyRevision, RetentionPolicy, Tenant
from retention.models.scope import ANY_CLASS

NO_CAP: Final = 2**53 - 1  # the list is the cap: two people agreed on exactly that


def publish(
    *,
    tenant: Tenant,
    code: str,
    title: str,
    authority: str,
    bucket_ids: Sequence[int],
    author: User,
    publisher: User,
    reason: str,
) -> PolicyRevision:
    """The revision of one erasure, in force at once. Runs in the transaction of the decision about it."""
    policy = RetentionPolicy(tenant=tenant, code=code, erasure=True)
    policy.full_clean()
    policy.save()
    now = clock.now()
    revision = PolicyRevision(
        policy=policy,
        tenant=tenant,
        number=1,
        title=title,
        authority=authority,
        bucket_ids=list(bucket_ids),
        prefixes=[""],
        retention_classes=[ANY_CLASS],
        trigger=PolicyRevision.Trigger.STORED_AT,
        period_number=0,
        period_unit=PolicyRevision.Unit.DAYS,
        already_absent=PolicyRevision.AlreadyAbsent.SUCCESS,
        authorisation=PolicyRevision.Authorisation.STANDING,
        cap_objects=NO_CAP,
        cap_bytes=NO_CAP,
        cap_share_percent=100,
        priority=0,
        retroactive=True,
        effective_from=now,
        author=author,
        submitted_by=author,
        submitted_at=now,
        published_by=publisher,
        published_at=now,
        in_force_from=now,
    )
    revision.full_clean()
    revision.save()
    control.bump(tenant.pk)
    audit.record(action="policy.published", subject=revision, by=publisher, reason=reason)
    return revision
