"""Lifecycle conflicts: rules by which the store could delete what a hold or a policy keeps. No hold of ours stops them.

Each sync reads a bucket's rules; the alarm is judged anew with every sweep, as holds and policies change.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

import structlog
from django.db import transaction
from django.utils.dateparse import parse_datetime

from cleanup_project.base import alarms, clock
from cleanup_project.base.canonical import instant
from cleanup_project.base.models import Alarm
from retention import governing
from retention.governing import Governing
from retention.models import Bucket, LegalHold, PolicyRevision, Tenant
from retention.models import LifecycleRule as Row
from retention.storage import BucketRef, LifecycleRule, ObjectStore, StorageError

ALARM: Final = "lifecycle.conflict"
LONGEST_DAYS: Final = {"days": 1, "weeks": 7, "months": 31, "years": 366}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Conflict:
    """A rule, and what it could delete although that is kept: holds in force, and revisions that still retain."""

    rule: Row
    holds: Sequence[LegalHold]
    policies: Sequence[Governing]


def observe(bucket: Bucket, place: BucketRef, store: ObjectStore) -> None:
    """Read the bucket's rules and keep what changed. Where the store does not let us see, that is kept instead."""
    asked_at = clock.now()
    try:
        seen, trouble = store.lifecycle_rules(place), ""
    except StorageError as error:
        seen, trouble = None, str(error)
        log.warning("lifecycle rules are not known", bucket=bucket.name, error=trouble)
    with transaction.atomic():
        if seen is not None:
            keep(bucket, seen, asked_at)
        bucket.lifecycle_observed_at, bucket.lifecycle_trouble = asked_at, trouble
        bucket.save(update_fields=["lifecycle_observed_at", "lifecycle_trouble"])
        assess(bucket)


def keep(bucket: Bucket, seen: Sequence[LifecycleRule], asked_at: datetime) -> None:
    """Rows for new and changed rules, the end of those that are gone; a changed rule ends and begins."""
    known = {row.rule_id: row for row in Row.objects.current().filter(bucket=bucket)}
    same = {each.rule_id for each in seen if each.rule_id in known and known[each.rule_id].data == as_json(each)}
    current = Row.objects.current().filter(bucket=bucket)
    current.filter(rule_id__in=same).update(last_seen_at=asked_at)
    current.exclude(rule_id__in=same).update(ended_at=asked_at)
    Row.objects.bulk_create(
        Row(
            bucket=bucket, rule_id=each.rule_id, prefix=each.prefix, words=words(each), data=as_json(each),
            first_seen_at=asked_at, last_seen_at=asked_at,
        )
        for each in seen if each.rule_id not in same
    )  # fmt: skip


def as_json(rule: LifecycleRule) -> dict[str, Any]:
    return asdict(rule) | {"expire_on": instant(rule.expire_on) if rule.expire_on else None}


def of_row(row: Row) -> LifecycleRule:
    on = row.data["expire_on"]
    return LifecycleRule(**row.data | {"expire_on": parse_datetime(on) if on else None})


def words(rule: LifecycleRule) -> str:
    """What a rule does, in words."""
    does = list(doings(rule))
    where = f"under {rule.prefix!r}" if rule.prefix else "in the whole bucket"
    narrowed = ", narrowed by tags or sizes" if rule.narrowed else ""
    switched = "" if rule.enabled else "Switched off. "
    return f"{switched}{'; '.join(does) or 'Deletes nothing'}, {where}{narrowed}."


def doings(rule: LifecycleRule) -> Iterator[str]:
    if rule.expire_days is not None:
        yield f"Expires current versions after {rule.expire_days} days"
    if rule.expire_on is not None:
        yield f"Expires current versions from {instant(rule.expire_on)} on"
    if rule.noncurrent_days is not None:
        kept = f", but for the {rule.noncurrent_kept} newest" if rule.noncurrent_kept else ""
        yield f"Deletes versions {rule.noncurrent_days} days after they ceased to be current{kept}"
    if rule.lone_markers:
        yield "Deletes delete markers that nothing stands behind"


def deletes_after(rule: LifecycleRule, versioning: str) -> int | None:
    """After how many days from its storing, at the earliest, the rule could delete a version; None: never.

    On a versioned bucket, an expiry only puts a delete marker on top: the version stays, until it is deleted as one that
    is no longer current.
    """
    if not rule.enabled:
        return None
    after = [] if rule.noncurrent_days is None else [rule.noncurrent_days]
    if versioning != Bucket.Versioning.ENABLED:
        after += [] if rule.expire_days is None else [rule.expire_days]
        after += [] if rule.expire_on is None else [0]
    return min(after, default=None)


def conflicts(bucket: Bucket, now: datetime) -> list[Conflict]:
    """The current rules that could delete what a hold in force covers, or what a policy in force still retains.

    By scope alone: a filter by tags or sizes, and what the catalogue holds, leave it at "could".
    """
    rules = Row.objects.current().filter(bucket=bucket).select_related("bucket").order_by("rule_id")
    return conflicts_of(list(rules), bucket, now)


def foreseen(bucket: Bucket, seen: Sequence[LifecycleRule], now: datetime) -> list[Conflict]:
    """The same of rules that were read a moment ago and stand in no row."""
    rules = [
        Row(bucket=bucket, rule_id=each.rule_id, prefix=each.prefix, words=words(each), data=as_json(each))
        for each in seen
    ]
    return conflicts_of(rules, bucket, now)


def conflicts_of(rules: Sequence[Row], bucket: Bucket, now: datetime) -> list[Conflict]:
    deleting = [(row, after) for row in rules if (after := deletes_after(of_row(row), bucket.versioning)) is not None]
    if not deleting:
        return []
    holding = list(LegalHold.objects.in_force().filter(bucket_ids__contains=[bucket.pk]).order_by("pk"))
    governs = list(rules_over(bucket, now))
    found = [
        Conflict(
            row,
            [hold for hold in holding if overlaps(row.prefix, hold.prefixes)],
            [rule for rule in governs if rule.meets(bucket.pk, row.prefix) and retains(rule, after)],
        )
        for row, after in deleting
    ]
    return [each for each in found if each.holds or each.policies]


def overlaps(prefix: str, others: Sequence[str]) -> bool:
    return any(prefix.startswith(other) or other.startswith(prefix) for other in others)


def rules_over(bucket: Bucket, now: datetime) -> Iterator[Governing]:
    """The revisions in force, of whatever tenant, whose scope names the bucket."""
    named = PolicyRevision.objects.filter(published_at__isnull=False, bucket_ids__contains=[bucket.pk])
    for tenant in Tenant.objects.filter(pk__in=named.values("tenant")).order_by("pk"):
        yield from (rule for rule in governing.of_tenant(tenant, now) if bucket.pk in rule.bucket_ids)


def retains(rule: Governing, days: int) -> bool:
    """Whether the policy may still retain an object so many days after it was stored; in doubt, yes."""
    certain = (
        rule.trigger == "stored_at"
        and rule.cutoff == "none"
        and not (rule.keep_newest or rule.retain_permanently or rule.suspended)
    )
    return not certain or days < rule.period_number * LONGEST_DAYS[rule.period_unit]


def assess(bucket: Bucket) -> bool:
    """Raise or clear the bucket's alarm by what is so now; whether there is a conflict."""
    found = conflicts(bucket, clock.now())
    if not found:
        alarms.clear(ALARM, bucket)
        return False
    alarms.notice(ALARM, bucket, message(bucket, found))
    return True


def message(bucket: Bucket, found: Sequence[Conflict]) -> str:
    told = "; ".join(f"{each.rule.rule_id} ({kept(each)})" for each in found)
    return (
        f"Lifecycle rules of bucket {bucket} could delete what must be kept, and no hold of ours stops the store: {told}. "
        "Switch these rules off at the store or narrow them, and run a sync."
    )


def kept(conflict: Conflict) -> str:
    """What a conflict is about, in words."""
    holding = ", ".join(f"hold {hold.pk} of {hold.matter}" for hold in conflict.holds)
    policies = ", ".join(rule.label for rule in conflict.policies)
    return " and ".join(filter(None, (holding, policies and f"retained by {policies}")))


def assess_all() -> int:
    """Judge every bucket that has rules or an open alarm; returns how many have a conflict."""
    alarmed = (
        Alarm.objects.open().filter(kind=ALARM, subject_type="retention.bucket").values_list("subject_id", flat=True)
    )
    ids = {int(pk) for pk in alarmed} | set(Row.objects.current().values_list("bucket", flat=True))
    return sum(assess(bucket) for bucket in Bucket.objects.filter(pk__in=ids).order_by("pk"))
