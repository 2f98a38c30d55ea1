"""Policies and their revisions: draft, publish. The only place that writes them."""

from typing import Any

from django.db import transaction
from django.db.models import Max
from django.db.models.functions import Now

from cleanup_project.base import audit, clock
from cleanup_project.base.models import User
from retention import control
from retention.exceptions import NotPermitted, RetentionError
from retention.models import PolicyRevision, RetentionPolicy, Tenant


def create(*, tenant: Tenant, code: str, by: User, schedule: str = "0 1 * * *") -> RetentionPolicy:
    """A new policy without any revision: it covers nothing until one is published."""
    require(by, "draft_policy", "draft policies")
    policy = RetentionPolicy(tenant=tenant, code=code, schedule=schedule)
    policy.full_clean()
    with transaction.atomic():
        policy.save()
        audit.record(action="policy.created", subject=policy, by=by, after={"schedule": schedule})
    return policy


def draft(*, policy: RetentionPolicy, by: User, **fields: Any) -> PolicyRevision:
    """A draft of the policy's next revision; `fields` are those of PolicyRevision. It changes nothing until published."""
    require(by, "draft_policy", "draft policies")
    with transaction.atomic():
        # The policy's row orders two drafts, so that each gets a number of its own.
        locked = RetentionPolicy.objects.select_for_update(no_key=True).get(pk=policy.pk)
        if locked.erasure:
            raise RetentionError(f"{policy} belongs to an urgent erasure: it says what was erased, and nothing more.")
        newest = policy.revisions.aggregate(newest=Max("number"))["newest"] or 0
        revision = PolicyRevision(policy=policy, tenant=policy.tenant, number=newest + 1, author=by, **fields)
        revision.full_clean()
        revision.save()
        audit.record(action="policy.drafted", subject=revision, by=by)
    return revision


def publish(*, revision: PolicyRevision, by: User, reason: str) -> PolicyRevision:
    """Put a revision in force from its effective date on, by a second person. It never changes afterwards.

    Raises NotPermitted for the author, and RetentionError where it is published already.
    """
    require(by, "publish_policy", "publish policies")
    with transaction.atomic():
        RetentionPolicy.objects.select_for_update(no_key=True).get(pk=revision.policy_id)
        revision = PolicyRevision.objects.select_related("policy", "author").get(pk=revision.pk)
        if revision.author_id == by.pk:
            raise NotPermitted(f"{revision} was drafted by {by}: a second person must publish it.")
        if revision.published_at is not None:
            raise RetentionError(f"{revision} is published already.")
        revision.published_at = clock.now()
        revision.published_by = by
        revision.full_clean()
        revision.save(update_fields=["published_at", "published_by"])
        control.bump(revision.tenant_id)
        audit.record(action="policy.published", subject=revision, by=by, reason=reason)
    return revision


def suspend(*, policy: RetentionPolicy, by: User, reason: str) -> RetentionPolicy:
    """From now on the policy destroys nothing, and what it covers is kept whatever other policies say."""
    require(by, "publish_policy", "suspend policies")
    if not reason:
        raise RetentionError("State a reason for the suspension.")
    with transaction.atomic():
        changed = RetentionPolicy.objects.filter(pk=policy.pk, suspended_at=None).update(
            suspended_at=Now(), suspended_reason=reason
        )
        if not changed:
            raise RetentionError(f"{policy} is suspended already.")
        control.bump(policy.tenant_id)
        audit.record(action="policy.suspended", subject=policy, by=by, reason=reason)
    policy.refresh_from_db()
    return policy


def require(by: User, right: str, words: str) -> None:
    if not by.has_perm(f"base.{right}"):
        raise NotPermitted(f"{by} may not {words}: no role of theirs has the right {right}.")
