"""Which revisions govern at an instant, and over which objects: a superseded one may go on governing older objects."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from django.db.models import QuerySet

from retention.models import PolicyRevision, RetentionPolicy, Tenant
from retention.models.scope import ANY_CLASS


@dataclass(frozen=True, slots=True)
class Governing:
    """A revision in force, and the half-open range of stored-at times that it governs (None: without end)."""

    revision_id: int
    policy_id: int
    policy: str
    number: int
    tenant_id: int
    bucket_ids: tuple[int, ...]
    prefixes: tuple[str, ...]
    retention_classes: tuple[str, ...]
    trigger: str
    event_type: str
    period_number: int
    period_unit: str
    cutoff: str
    keep_newest: int
    retain_permanently: bool
    remove_expired_markers: bool
    suspended: bool
    stored_from: datetime | None = None
    stored_to: datetime | None = None

    @property
    def waits(self) -> bool:
        """Whether a retention event starts its clock."""
        return self.trigger == PolicyRevision.Trigger.EVENT

    @property
    def label(self) -> str:
        return f"{self.policy}/{self.number}"

    @property
    def period(self) -> str:
        """The period as PostgreSQL reads an interval."""
        return f"{self.period_number} {self.period_unit}"

    def in_scope(self, tenant_id: int | None, bucket_id: int, key: str, retention_class: str) -> bool:
        """Whether the scope matches: OR inside a dimension, AND across."""
        return (
            tenant_id == self.tenant_id
            and bucket_id in self.bucket_ids
            and (ANY_CLASS in self.retention_classes or retention_class in self.retention_classes)
            and key.startswith(self.prefixes)
        )

    def meets(self, bucket_id: int, prefix: str) -> bool:
        """Whether anything under this prefix can be in its scope, as far as its key says, which never changes."""
        return bucket_id in self.bucket_ids and any(
            own.startswith(prefix) or prefix.startswith(own) for own in self.prefixes
        )

    def governs(self, stored_at: datetime) -> bool:
        """Whether an object first stored then is this revision's, and not its predecessor's or successor's."""
        return (self.stored_from is None or stored_at >= self.stored_from) and (
            self.stored_to is None or stored_at < self.stored_to
        )


def in_force(revisions: Iterable[PolicyRevision], as_of: datetime) -> list[Governing]:
    """The revisions of one policy that govern at `as_of`, newest first.

    The newest effective revision governs everything if it is retroactive, else what was stored from its effective date
    on; older objects stay with its predecessor, by the same rule.
    """
    effective = [
        revision for revision in revisions if revision.in_force_from is not None and revision.in_force_from <= as_of
    ]
    found: list[Governing] = []
    stored_to: datetime | None = None
    for revision in sorted(effective, key=lambda revision: revision.number, reverse=True):
        stored_from = None if revision.retroactive else revision.effective_from
        if stored_to is None or stored_from is None or stored_from < stored_to:
            found.append(governing(revision, stored_from=stored_from, stored_to=stored_to))
            stored_to = stored_from
        if stored_from is None:
            break
    return found


def of_tenant(tenant: Tenant, as_of: datetime) -> list[Governing]:
    """Every revision that governs objects of the tenant at `as_of`, ordered by policy, newest first."""
    published = PolicyRevision.objects.filter(tenant=tenant, published_at__isnull=False, policy__erasure=False)
    return list(evaluated(as_of, tuple(published.order_by("pk").values_list("pk", "policy__suspended_at"))))


def of_policy(policy: RetentionPolicy, as_of: datetime) -> list[Governing]:
    """What decides about the objects of one policy's runs at `as_of`: an erasure decides alone, a policy with all others."""
    if policy.erasure:
        return in_force(policy.revisions.select_related("policy"), as_of)
    return of_tenant(policy.tenant, as_of)


@lru_cache(maxsize=16)
def evaluated(as_of: datetime, published: tuple[tuple[int, datetime | None], ...]) -> list[Governing]:
    """What these revisions make at `as_of`: the same for each part of a run, as only a policy's suspension can change."""
    revisions = PolicyRevision.objects.filter(pk__in=[pk for pk, _suspended in published])
    return [rule for chain in by_policy(revisions).values() for rule in in_force(chain, as_of)]


def by_policy(revisions: QuerySet[PolicyRevision]) -> dict[int, list[PolicyRevision]]:
    """The revisions of each policy, oldest first, by the policy's id."""
    found: dict[int, list[PolicyRevision]] = {}
    for revision in revisions.select_related("policy").order_by("policy_id", "number"):
        found.setdefault(revision.policy_id, []).append(revision)
    return found


def published_by_policy(tenant_id: int) -> dict[int, list[PolicyRevision]]:
    """What is published of each policy of the tenant, oldest first, whether in force or not yet or no longer."""
    published = PolicyRevision.objects.filter(tenant_id=tenant_id, published_at__isnull=False, policy__erasure=False)
    return by_policy(published)


def now_or_later(revisions: Sequence[PolicyRevision], now: datetime) -> list[Governing]:
    """The rules of one policy that govern anything now, or will, as far as is published."""
    coming = [each for each in revisions if each.in_force_from is not None and each.in_force_from > now]
    return in_force(revisions, now) + [governing(each, stored_from=None, stored_to=None) for each in coming]


def governing(revision: PolicyRevision, *, stored_from: datetime | None, stored_to: datetime | None) -> Governing:
    return Governing(
        revision_id=revision.pk,
        policy_id=revision.policy_id,
        policy=revision.policy.code,
        number=revision.number,
        tenant_id=revision.tenant_id,
        bucket_ids=tuple(revision.bucket_ids),
        prefixes=tuple(revision.prefixes),
        retention_classes=tuple(revision.retention_classes),
        trigger=revision.trigger,
        event_type=revision.event_type,
        period_number=revision.period_number,
        period_unit=revision.period_unit,
        cutoff=revision.cutoff,
        keep_newest=revision.keep_newest,
        retain_permanently=revision.retain_permanently,
        remove_expired_markers=revision.remove_expired_markers,
        suspended=revision.policy.suspended_at is not None,
        stored_from=stored_from,
        stored_to=stored_to,
    )


def as_json(rules: Sequence[Governing]) -> list[dict[str, Any]]:
    """The rules as the SQL of `sql/judge.sql` takes them."""
    return [
        {
            "revision_id": rule.revision_id,
            "policy_id": rule.policy_id,
            "label": rule.label,
            "policy": rule.policy,
            "number": rule.number,
            "tenant_id": rule.tenant_id,
            "bucket_ids": list(rule.bucket_ids),
            "prefixes": list(rule.prefixes),
            "retention_classes": list(rule.retention_classes),
            "trigger": rule.trigger,
            "event_type": rule.event_type,
            "period": rule.period,
            "words": rule.period,
            "cutoff": rule.cutoff,
            "keep_newest": rule.keep_newest,
            "retain_permanently": rule.retain_permanently,
            "remove_expired_markers": rule.remove_expired_markers,
            "suspended": rule.suspended,
            "stored_from": rule.stored_from.isoformat() if rule.stored_from else None,
            "stored_to": rule.stored_to.isoformat() if rule.stored_to else None,
        }
        for rule in rules
    ]
