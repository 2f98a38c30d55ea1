"""Floors: whether the catalogue of a bucket may be acted upon. Stale or shrunken, it is no ground to destroy anything."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Max

from cleanup_project.base import alarms, audit, clock, tenancy
from cleanup_project.base.models import User
from retention import governing
from retention.exceptions import NotPermitted, RetentionError
from retention.models import Bucket, CatalogueSync, ObjectVersion, PolicyRevision, Tenant
from retention.prefixes import minimal, successor

STALE = "catalogue.stale"
SHRUNK = "catalogue.shrunk"
CHANGE_LIMITS = "or have a retention manager change the limits of the bucket."


@dataclass(frozen=True, slots=True)
class Finding:
    """A floor that a bucket's catalogue has fallen through; `kind` is that of the alarm about the bucket."""

    kind: str
    bucket: str
    limit: int
    actual: int | None
    message: str


def findings(bucket: Bucket, prefixes: Iterable[str]) -> list[Finding]:
    """What speaks against acting on what the catalogue says of a bucket under these prefixes."""
    wanted = minimal(prefixes)
    return [*stale(bucket, wanted, clock.now()), *shrunk(bucket, wanted)]


def stale(bucket: Bucket, prefixes: list[str], now: datetime) -> Iterator[Finding]:
    """The prefix that was brought up to date the longest ago, where that is longer than the bucket's limit."""
    limit = bucket.catalogue_max_age_hours
    if limit is None or not prefixes:
        return
    finished = bucket.syncs.filter(finished_at__isnull=False).order_by()
    newest = list(finished.values_list("prefix").annotate(at=Max("started_at")))
    known = [max((at for covered, at in newest if prefix.startswith(covered)), default=None) for prefix in prefixes]
    what = f"Bring it up to date with `manage.py catalogue sync {bucket}`, {CHANGE_LIMITS}"
    if None in known:
        place = prefixes[known.index(None)]
        words = f"The catalogue of {bucket}/{place} has never been brought up to date. {what}"
        yield Finding(STALE, str(bucket), limit, None, words)
        return
    oldest = min(at for at in known if at is not None)
    hours = (now - oldest).total_seconds() / 3600
    if hours > limit:
        words = f"The catalogue of {bucket} is {hours:,.0f} hours old, and its limit is {limit:,} hours. {what}"
        yield Finding(STALE, str(bucket), limit, int(hours), words)


def shrunk(bucket: Bucket, prefixes: list[str]) -> Iterator[Finding]:
    """Whether a listing found less than the one before it by more than the bucket's limit, our own deletions apart."""
    limit = bucket.shrink_percent
    whole = bucket.syncs.filter(finished_at__isnull=False).exclude(source=ObjectVersion.Source.IMPORT)
    if limit is None:
        return
    for covered in sorted(set(whole.order_by().values_list("prefix", flat=True))):
        if not any(prefix.startswith(covered) for prefix in prefixes):
            continue
        newest = whole.filter(prefix=covered).order_by("-started_at", "-id")[0]
        earlier = whole.filter(prefix=covered, source=newest.source, pk__lt=newest.pk).order_by("-started_at", "-id")
        before = earlier.first()
        lost = missing(before, newest, limit) if before else 0
        if before and lost:
            words = (
                f"{bucket}/{covered} showed {newest.versions:,} versions at the last listing and {before.versions:,} at "
                f"the one before: {lost:,} of them are gone, not by our hand, which is more than {limit} %. See whether "
                f"the listing is whole. If it is, list it once more, {CHANGE_LIMITS}"
            )
            yield Finding(SHRUNK, str(bucket), limit, 100 * lost // before.versions, words)


def missing(before: CatalogueSync, newest: CatalogueSync, limit: int) -> int:
    """By how many versions a bucket has shrunk, if by more than so many percent, without those that we destroyed."""
    lost = before.versions - newest.versions
    if lost * 100 <= before.versions * limit:
        return 0
    ours = ObjectVersion.objects.filter(
        tenant__in=list(Tenant.objects.values_list("pk", flat=True)),  # the index begins with it
        bucket=newest.bucket,
        gone_reason="destroyed",
        gone_at__gte=before.started_at,
        gone_at__lte=newest.finished_at,
    )
    ours = ours.filter(key__gte=newest.prefix)
    end = successor(newest.prefix)
    lost -= (ours.filter(key__lt=end) if end is not None else ours).count()
    return lost if lost * 100 > before.versions * limit else 0


def review(bucket: Bucket) -> None:
    """Raise and clear the alarms about a bucket, by every prefix of it that a policy in force covers."""
    found = {finding.kind: finding for finding in findings(bucket, governed_prefixes(bucket))}
    for kind in (STALE, SHRUNK):
        if kind in found:
            alarms.notice(kind, bucket, found[kind].message)
        else:
            alarms.clear(kind, bucket)


def governed_prefixes(bucket: Bucket) -> set[str]:
    by_policy: dict[int, list[PolicyRevision]] = {}
    scheduled = PolicyRevision.objects.filter(published_at__isnull=False, policy__erasure=False)
    published = scheduled.filter(bucket_ids__contains=[bucket.pk])
    policies = set(published.values_list("policy_id", flat=True))
    for revision in PolicyRevision.objects.filter(policy__in=policies).select_related("policy"):
        by_policy.setdefault(revision.policy_id, []).append(revision)
    now = clock.now()
    rules = [rule for revisions in by_policy.values() for rule in governing.in_force(revisions, now)]
    return {prefix for rule in rules if bucket.pk in rule.bucket_ids for prefix in rule.prefixes}


def change_limits(
    *, bucket: Bucket, catalogue_max_age_hours: int | None, shrink_percent: int | None, by: User, reason: str
) -> Bucket:
    """Change what the catalogue of a bucket must fulfil before anything is destroyed; None opts out of that floor.

    Raises NotPermitted, RetentionError, or Django's ValidationError.
    """
    if not by.has_perm("base.publish_policy"):
        raise NotPermitted(f"{by} may not change a bucket's limits: no role of theirs has the right publish_policy.")
    tenancy.permit(by, bucket, NotPermitted)
    if not reason.strip():
        raise RetentionError("State a reason for changing the limits.")
    after: dict[str, Any] = {
        "catalogue_max_age_hours": catalogue_max_age_hours,
        "shrink_percent": shrink_percent,
    }
    with transaction.atomic():
        row = Bucket.objects.select_for_update(no_key=True).get(pk=bucket.pk)
        before = {name: getattr(row, name) for name in after}
        if before == after:
            raise RetentionError(f"These are the limits of {bucket} already.")
        for name, value in after.items():
            setattr(row, name, value)
        row.full_clean()
        row.save(update_fields=list(after))
        audit.record(action="bucket.limits", subject=row, by=by, reason=reason, before=before, after=after)
        review(row)
    return row
