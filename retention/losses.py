"""What a sync found lost or risen: versions that vanished outside of us, and destroyed ones that are still there.

Either raises an alarm about the bucket, which stays until a person says that they have seen it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from django.db import transaction
from django.db.models import Count, Sum

from cleanup_project.base import alarms, audit, tenancy
from cleanup_project.base.models import Alarm, User
from retention import governing, holds, scan
from retention.eligibility import Reason
from retention.exceptions import NotPermitted, RetentionError
from retention.models import Bucket, CatalogueSync, ObjectVersion, Tenant

VANISHED: Final = "catalogue.vanished"
SURVIVED: Final = "catalogue.survived"
KINDS: Final = (VANISHED, SURVIVED)
# A policy in force, or somebody's decision, would still have kept it, held or not.
RETAINED: Final = frozenset({
    Reason.PERMANENT, Reason.SUSPENDED, Reason.AWAITING_EVENT, Reason.UNKNOWN_DATE, Reason.NOT_YET, Reason.KEPT_NEWEST,
    Reason.EXEMPT,
})  # fmt: skip


class Kept(NamedTuple):
    """Ids of versions that were to be kept: by a hold in force, by a policy in force. One may be in both."""

    held: set[int]
    retained: set[int]


def kept(ids: Sequence[int], as_of: datetime) -> Kept:
    """Which of these versions, present until now, were to be kept. Runs in the transaction that marks them gone."""
    found = Kept(set(), set())
    owned = ObjectVersion.objects.filter(pk__in=ids, tenant__isnull=False).values_list("tenant_id", "pk")
    by_tenant: dict[int, list[int]] = {}
    for tenant_id, pk in owned:
        by_tenant.setdefault(tenant_id, []).append(pk)
    for tenant in Tenant.objects.filter(pk__in=by_tenant).order_by("pk"):
        own = by_tenant[tenant.pk]
        found.held.update(holds.covering(own, tenant.pk))
        reasons = scan.reasons(own, governing.of_tenant(tenant, as_of), as_of)
        found.retained.update(pk for pk, (reason, _governing) in reasons.items() if reason in RETAINED)
    return found


def tell(run: CatalogueSync) -> None:
    """Raise the alarms of a sync that has finished."""
    if run.vanished:
        alarms.notice(VANISHED, run.bucket, vanished_message(run))
    if run.survived:
        alarms.notice(
            SURVIVED,
            run.bucket,
            f"{versions(run.survived)} that we had destroyed {'was' if run.survived == 1 else 'were'} listed again by {run}: "
            "a receipt says gone, and the store says there. Look at the object versions whose state is "
            "“survived its end”, ask the store's operator, and mark this as seen at the bucket.",
        )


def vanished_message(run: CatalogueSync) -> str:
    """Every sync since somebody last said "seen" counts: a later one must not hide what an earlier one found."""
    since = CatalogueSync.objects.filter(bucket=run.bucket, vanished__gt=0, finished_at__isnull=False)
    last_seen = (
        Alarm.objects.filter(kind=VANISHED, subject_type="retention.bucket", subject_id=str(run.bucket_id))
        .exclude(cleared_at=None)
        .order_by("-cleared_at")
        .values_list("cleared_at", flat=True)
        .first()
    )
    if last_seen is not None:
        since = since.filter(finished_at__gt=last_seen)
    told = since.aggregate(
        syncs=Count("pk"), vanished=Sum("vanished"), held=Sum("vanished_held"), retained=Sum("vanished_retained")
    )
    return (
        f"{versions(told['vanished'])} vanished outside of us, as {told['syncs']} of our syncs found, the last of them "
        f"{run}: {told['held']:,} under a legal hold, {told['retained']:,} still retained by a policy or a decision. "
        "Look for whoever deletes in this bucket besides us (its lifecycle rules, other programs, people), and "
        "mark this as seen at the bucket."
    )


def versions(number: int) -> str:
    return f"{number:,} version{'' if number == 1 else 's'}"


def open_alarms(bucket: Bucket) -> list[Alarm]:
    about = Alarm.objects.open().filter(subject_type="retention.bucket", subject_id=str(bucket.pk), kind__in=KINDS)
    return list(about.order_by("kind"))


def seen(*, bucket: Bucket, by: User, reason: str) -> list[Alarm]:
    """A person has seen what vanished or survived in the bucket; returns the alarms that this ended."""
    if not by.has_perm("base.review_quarantine"):
        raise NotPermitted(f"{by} may not mark losses as seen: no role of theirs has the right review_quarantine.")
    tenancy.permit(by, bucket, NotPermitted)
    if not reason.strip():
        raise RetentionError("State what you found out.")
    with transaction.atomic():
        found = open_alarms(bucket)
        if not found:
            raise RetentionError(f"Nothing is open about bucket {bucket}.")
        for alarm in found:
            alarms.clear(alarm.kind, bucket)
            after = {"alarm": alarm.kind, "message": alarm.message}
            audit.record(action="catalogue.loss_seen", subject=bucket, by=by, reason=reason, after=after)
    return found
