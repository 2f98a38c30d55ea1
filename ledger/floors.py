"""What must be so before a run opens: its input is fresh, whole, and not suddenly empty."""

from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.db.models import Q

from ledger.models import ManifestPart
from retention import freshness
from retention.governing import Governing
from retention.models import ANY_CLASS, Bucket, ObjectVersion, RetentionPolicy
from retention.prefixes import minimal, successor


def check(policy: RetentionPolicy, rules: list[Governing]) -> list[dict[str, Any]]:
    """What speaks against a run of the policy now, each with its numbers and a `message` that says what to do.

    Raises and clears the alarms about the buckets in scope.
    """
    found = list[dict[str, Any]]()
    for bucket in Bucket.objects.filter(pk__in={pk for rule in rules for pk in rule.bucket_ids}).order_by("pk"):
        own = {prefix for rule in rules if bucket.pk in rule.bucket_ids for prefix in rule.prefixes}
        found += [asdict(finding) for finding in freshness.findings(bucket, own)]
        freshness.review(bucket)
    return found + empty(policy, rules)


def empty(policy: RetentionPolicy, rules: list[Governing]) -> list[dict[str, Any]]:
    """Nothing is present in a scope of which runs have read something, and it was not all destroyed by us."""
    covered = any(in_scope(rule).filter(gone_at=None, standalone=True).exists() for rule in rules)
    if covered or not ManifestPart.objects.filter(run__policy=policy, read__gt=0).exists():
        return []
    gone = {reason for rule in rules for reason in in_scope(rule).values_list("gone_reason", flat=True).distinct()}
    if gone == {ObjectVersion.Gone.DESTROYED.value}:
        return []
    words = (
        f"No present object version is in the scope of {policy}, though its runs have read some before. See whether key "
        "rules, the tenant's name or the buckets have changed; publish another scope, or suspend the policy."
    )
    return [{"kind": "policy.empty", "bucket": None, "limit": 1, "actual": 0, "message": words}]


def in_scope(rule: Governing) -> Any:
    """Object versions that a revision covers by tenant, bucket, prefix, class and time, present or gone."""
    places = Q()
    for prefix in minimal(rule.prefixes):
        end = successor(prefix)
        places |= Q(key__gte=prefix) & (Q(key__lt=end) if end is not None else Q())
    rows = ObjectVersion.objects.filter(places, tenant=rule.tenant_id, bucket__in=rule.bucket_ids)
    if ANY_CLASS not in rule.retention_classes:
        rows = rows.filter(retention_class__in=rule.retention_classes)
    ends: tuple[tuple[str, datetime | None], ...] = (
        ("stored_at__gte", rule.stored_from),
        ("stored_at__lt", rule.stored_to),
    )
    return rows.filter(**{name: at for name, at in ends if at is not None})
