"""Retention events: look at what one would start, post it, withdraw it. The only place that writes them."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from django.db import OperationalError, connection, transaction
from django.db.models import Model, Q
from django.db.models.functions import Now
from psycopg.errors import LockNotAvailable

from cleanup_project.base import audit, clock, sqlfiles, tenancy
from cleanup_project.base.display import counted
from cleanup_project.base.models import User
from cleanup_project.base.paginator import limited
from retention import control, governing, holds
from retention.exceptions import NotPermitted, RetentionError, TryLater
from retention.governing import Governing
from retention.models import ANY_CLASS, Bucket, ObjectVersion, PolicyRevision, RetentionEvent, Tenant
from retention.prefixes import minimal, narrowed, successor

COUNT_UP_TO: Final = 1_000_000
COUNT_SECONDS: Final = 5.0
SAMPLES: Final = 20
LOCK_SECONDS: Final = 2  # how long claims may queue behind one try for the lock


@dataclass(slots=True)
class Preview:
    """What an event would start now: present versions under the policies in force that wait for its type.

    `counted_all` is False where there may be more than were counted, up to COUNT_UP_TO and within COUNT_SECONDS. `samples`
    are a few of them.
    """

    policies: Sequence[str]
    versions: int = 0
    bytes: int = 0
    counted_all: bool = True
    samples: list[ObjectVersion] = field(default_factory=list)

    @property
    def words(self) -> str:
        if not self.policies:
            return "It starts no clock: no policy in force waits for an event of this type in this scope."
        number = ("" if self.counted_all else "at least ") + counted(self.versions, "present object version")
        return (
            f"It starts the clock of {number}, under {', '.join(self.policies)}, and of those that "
            "are stored later. Where an earlier event has started it, the later of the two dates counts."
        )


def preview(event: RetentionEvent) -> Preview:
    """What posting this event, not saved yet, would start. Raises ValidationError for one that cannot be posted."""
    event.full_clean(exclude=["posted_by", "started_versions", "started_bytes", "counted_all"])
    rules = waiting(event)
    found = Preview(sorted({rule.label for rule in rules}))
    until = time.monotonic() + COUNT_SECONDS
    for bucket_id, prefix in places(event, rules):
        left = until - time.monotonic()
        if found.versions >= COUNT_UP_TO or left <= 0:
            found.counted_all = False
            break
        try:
            with transaction.atomic(), limited(max(1, int(left * 1000))):
                count_place(found, event, rules, bucket_id, prefix)
        except OperationalError:  # over its time: the event can be posted all the same
            found.counted_all = False
            break
    return found


def waiting(event: RetentionEvent) -> list[Governing]:
    """The rules in force that wait for its type and can meet its scope; not those that destroy nothing anyway."""
    return [
        rule
        for rule in governing.of_tenant(event.tenant, clock.now())
        if rule.waits
        and rule.event_type == event.event_type
        and not rule.retain_permanently
        and narrowed(rule.prefixes, event.prefixes)  # perhaps the empty prefix alone: the whole bucket
        and set(rule.bucket_ids) & set(event.bucket_ids)
        and meet(rule.retention_classes, event.retention_classes)
    ]


def meet(one: Sequence[str], other: Sequence[str]) -> bool:
    return ANY_CLASS in one or ANY_CLASS in other or bool(set(one) & set(other))


def places(event: RetentionEvent, rules: Sequence[Governing]) -> Iterator[tuple[int, str]]:
    """The (bucket id, prefix) pairs, none within another, in which event and rules meet."""
    for bucket_id in sorted(set(event.bucket_ids)):
        prefixes = [
            prefix
            for rule in rules
            if bucket_id in rule.bucket_ids
            for prefix in narrowed(rule.prefixes, event.prefixes)
        ]
        yield from ((bucket_id, prefix) for prefix in minimal(prefixes))


def count_place(found: Preview, event: RetentionEvent, rules: Sequence[Governing], bucket_id: int, prefix: str) -> None:
    left = COUNT_UP_TO - found.versions
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "started_by_event.sql"),
            {
                "tenant": event.tenant_id,
                "bucket": bucket_id,
                "prefix": prefix,
                "prefix_end": successor(prefix),
                "classes": event.retention_classes,
                "rules": json.dumps(governing.as_json(rules)),
                "up_to": left + 1,
                "samples": SAMPLES - len(found.samples),
            },
        )
        versions, size, samples = cursor.fetchone()
    found.counted_all &= versions <= left
    found.versions += min(versions, left)
    found.bytes += size
    found.samples += ObjectVersion.objects.filter(pk__in=samples).select_related("bucket").order_by("key", "pk")


def post(
    *,
    tenant: Tenant,
    event_type: str,
    occurred_at: datetime,
    buckets: Sequence[Bucket],
    prefixes: Sequence[str],
    retention_classes: Sequence[str],
    by: User,
    reason: str,
    reference: str = "",
) -> RetentionEvent:
    """Post an event: from when it occurred, the clock of what it covers runs, present and later objects alike.

    It records how many versions that are at present. Raises NotPermitted, RetentionError, and ValidationError with a
    message for each field; an event without scope is refused.
    """
    permit(by, "post", tenant)
    event = RetentionEvent(
        tenant=tenant,
        event_type=event_type,
        occurred_at=occurred_at,
        bucket_ids=[bucket.pk for bucket in buckets],
        prefixes=list(prefixes),
        retention_classes=list(retention_classes),
        reason=reason.strip(),
        reference=reference,
        posted_by=by,
    )
    seen = preview(event)
    event.started_versions, event.started_bytes, event.counted_all = seen.versions, seen.bytes, seen.counted_all
    with transaction.atomic():
        lock_out_judges(tenant.pk)
        event.save()
        control.bump(tenant.pk)  # the later of two dates counts, so it may also keep something longer
        told = {
            "versions": seen.versions,
            "bytes": seen.bytes,
            "counted_all": seen.counted_all,
            "policies": seen.policies,
        }
        audit.record(action="event.posted", subject=event, by=by, reason=event.reason, after=told)
    event.refresh_from_db()
    return event


def withdraw(*, event: RetentionEvent, by: User, reason: str) -> RetentionEvent:
    """Take an event back, as if it had not happened: possible until the first deletion of something that it covers.

    Raises NotPermitted and RetentionError. From now on workers judge again before they send a request; one that they have
    sent by now may still be executed.
    """
    permit(by, "withdraw", event)
    if not reason.strip():
        raise RetentionError("State a reason: it is kept for ever.")
    destroyed = destroyed_under(event)
    if destroyed is not None:
        raise RetentionError(
            f"{destroyed} has been destroyed under this event already, so it cannot be withdrawn. To keep what is left, "
            "place a legal hold, suspend the policy, or exempt the objects."
        )
    with transaction.atomic():
        lock_out_judges(event.tenant_id)
        standing = RetentionEvent.objects.standing().filter(pk=event.pk)
        if not standing.update(withdrawn_at=Now(), withdrawn_by=by, withdrawn_reason=reason.strip()):
            raise RetentionError(f"The event {event} has been withdrawn already.")
        control.bump(event.tenant_id)
        audit.record(action="event.withdrawn", subject=event, by=by, reason=reason)
    event.refresh_from_db()
    return event


def destroyed_under(event: RetentionEvent) -> ObjectVersion | None:
    """A version that we destroyed since the event was posted, in its scope and in that of a policy for its type.

    Whichever revision it was, and whether or not another event covered it, too. What is being destroyed while this looks is
    as what is in flight: no lock could call it back.
    """
    gone = ObjectVersion.objects.filter(
        tenant=event.tenant_id, gone_reason=ObjectVersion.Gone.DESTROYED, gone_at__gt=event.posted_at
    )
    revisions = PolicyRevision.objects.filter(
        tenant=event.tenant_id, published_at__isnull=False, event_type=event.event_type
    )
    covered = Q(pk__in=[])
    for revision in revisions:
        covered |= within(revision)
    return gone.filter(within(event)).filter(covered).first()


def within(scope: RetentionEvent | PolicyRevision) -> Q:
    place = Q(bucket__in=scope.bucket_ids)
    if ANY_CLASS not in scope.retention_classes:
        place &= Q(retention_class__in=scope.retention_classes)
    if "" not in scope.prefixes:
        keys = Q(pk__in=[])
        for prefix in scope.prefixes:
            end = successor(prefix)
            keys |= Q(key__gte=prefix) & (Q(key__lt=end) if end is not None else Q())
        place &= keys
    return place


def lock_out_judges(tenant_id: int) -> None:
    """Wait for every part, claim and replay that is judging objects of the tenant, and keep later ones out until the end.

    They hold this lock, shared, while they judge. So each of them either sees what is written here, or judged at an earlier
    time than stands in it, and its commands are judged again before they are sent (ledger/keeping.py). Without it, an event
    could bear an earlier time than a run that did not see it. What a claim has let pass is stopped by the epoch, which is
    raised in the same transaction and read before each request.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{LOCK_SECONDS}s"])
        try:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [holds.LOCK_CLASS, tenant_id])
        except OperationalError as error:
            if isinstance(error.__cause__, LockNotAvailable):
                raise TryLater("Workers are busy with objects of this tenant: try again in a moment.") from error
            raise


def permit(by: User, what: str, about: Model) -> None:
    if not by.has_perm("base.post_event"):
        raise NotPermitted(f"{by} may not {what} retention events: that needs the right post_event.")
    tenancy.permit(by, about, NotPermitted)
