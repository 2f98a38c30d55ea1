"""Makes catalogue rows, policies and holds in one line each; every value that a test does not care about is ordinary."""

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from django.contrib.auth.models import Group
from django.db.models.functions import Now

from cleanup_project.base import apitokens, roles
from cleanup_project.base.models import User
from ledger import manifest, runs
from ledger.models import CleanupRun
from retention import enforcement, events, holds, policies, preview, releases
from retention.eligibility import HoldFacts, VersionFacts
from retention.models import (
    Bucket,
    CatalogueSync,
    Enforcement,
    HoldRelease,
    LegalHold,
    ObjectVersion,
    PolicyRevision,
    RetentionEvent,
    RetentionPolicy,
    Role,
    Tenant,
)

EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
_serial = count(1)


def listed(bucket: Bucket, **fields: Any) -> CatalogueSync:
    """A listing of the bucket that ended a moment ago, so that its catalogue is fresh."""
    return CatalogueSync.objects.create(bucket=bucket, **({"finished_at": Now()} | fields))


def version(bucket: Bucket, tenant: Tenant | None, key: str, **fields: Any) -> ObjectVersion:
    """One catalogued object version."""
    original_key = fields.get("original_key", "")
    defaults: dict[str, Any] = {
        "version_id": f"v{next(_serial):08d}",
        "etag": "d41d8cd98f00b204e9800998ecf8427e",
        "size": 100,
        "stored_at": EPOCH,
        "is_latest": True,
        "is_delete_marker": False,
        "asset": key,
        "series": fields.get("asset", key),
        "role": Role.DERIVATIVE if original_key else Role.ORIGINAL,
        "original_bucket": bucket if original_key else None,
        "standalone": not original_key,
        "source": ObjectVersion.Source.LISTING,
        "first_observed_at": EPOCH,
        "observed_at": EPOCH,
        "listed_at": EPOCH,
    }
    return ObjectVersion.objects.create(bucket=bucket, tenant=tenant, key=key, **(defaults | fields))


def published(
    tenant: Tenant, bucket: Bucket, *, author: User, publisher: User, code: str = "", **fields: Any
) -> PolicyRevision:
    """A published revision; of the policy `code` if it exists, else of a new one."""
    code = code or f"policy-{next(_serial)}"
    policy = RetentionPolicy.objects.filter(code=code).first() or policies.create(tenant=tenant, code=code, by=author)
    defaults: dict[str, Any] = {
        "title": "Originals",
        "authority": "Retention Act, section 1",
        "bucket_ids": [bucket.pk],
        "prefixes": [""],
        "retention_classes": ["*"],
        "trigger": PolicyRevision.Trigger.STORED_AT,
        "period_number": 30,
        "period_unit": PolicyRevision.Unit.DAYS,
        "retroactive": True,
        "effective_from": EPOCH,
    }
    Tenant.objects.filter(pk=tenant.pk).update(shortening_delay_hours=0)
    revision = policies.draft(policy=policy, by=author, **(defaults | fields))
    policies.submit(revision=revision, by=author)
    preview.request(revision=revision, by=author)
    return policies.publish(revision=revision, by=publisher, reason="Reviewed.")


def enforced(
    tenant: Tenant, bucket: Bucket, prefix: str, *, by: User, approver: User, reason: str = "Pilot"
) -> Enforcement:
    """Enforcement under one prefix, asked for by one person and approved by another; the bucket's catalogue is fresh."""
    if not bucket.syncs.exists():
        listed(bucket)
    asked = enforcement.request(tenant=tenant, bucket=bucket, prefix=prefix, by=by, reason=reason)
    return enforcement.approve(request=asked, by=approver, reason="Looked at.")


def sealed_run(
    revision: PolicyRevision, *, by: User | None = None, mode: CleanupRun.Mode = CleanupRun.Mode.DRY_RUN
) -> CleanupRun:
    """A run of the revision's policy, its manifest frozen and sealed."""
    run, _new = runs.open_run(policy=revision.policy, by=by, mode=mode)
    return manifest.freeze(run)


def hold(tenant: Tenant, bucket: Bucket, prefix: str, *, by: User, **fields: Any) -> LegalHold:
    """A hold in force over one prefix."""
    defaults: dict[str, Any] = {
        "matter": "Doe v. Acme",
        "title": "Interview footage",
        "authority": "Court order",
        "reason": "Preservation letter",
        "retention_classes": ["*"],
    }
    return holds.place(tenant=tenant, buckets=[bucket], prefixes=[prefix], by=by, **(defaults | fields))


def event(tenant: Tenant, bucket: Bucket, prefix: str, *, by: User, **fields: Any) -> RetentionEvent:
    """A retention event that covers one prefix."""
    defaults: dict[str, Any] = {
        "event_type": "contract-ended",
        "occurred_at": EPOCH,
        "reason": "The contract has ended",
        "retention_classes": ["*"],
    }
    return events.post(tenant=tenant, buckets=[bucket], prefixes=[prefix], by=by, **(defaults | fields))


def release(placed: LegalHold) -> HoldRelease:
    """Release a hold, by two people who exist for that."""
    one, other = (User.objects.get_or_create(username=f"releases-{n}")[0] for n in "ab")
    for each in (one, other):
        each.groups.add(Group.objects.get(name=roles.COMPLIANCE))
    asked = releases.request(hold=placed, by=one, reason="The matter is closed")
    return releases.approve(release=asked, by=other, reason="Confirmed", matter=placed.matter)


def program(*, person: User, scopes: list[str], tenants: list[str] | None = None, name: str = "nightly") -> User:
    """The account of a program, whose token this person made, as an administrator who is one for the moment."""
    person.groups.add(administrators := Group.objects.get(name=roles.ADMINISTRATOR))
    token, _text = apitokens.create(
        name=name, scopes=scopes, tenants=tenants or [], days=1, by=User.objects.get(pk=person.pk), reason="Made."
    )
    person.groups.remove(administrators)
    return token.account


def facts(row: ObjectVersion) -> VersionFacts:
    from retention.why import facts_of

    return facts_of(row)


def days_ago(days: float, now: datetime) -> datetime:
    return now - timedelta(days=days)


__all__ = [
    "EPOCH",
    "HoldFacts",
    "days_ago",
    "enforced",
    "event",
    "facts",
    "hold",
    "listed",
    "program",
    "published",
    "release",
    "sealed_run",
    "version",
]
