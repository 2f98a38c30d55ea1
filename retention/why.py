"""Why is this object eligible, or why not: the present facts of any version, judged, in words."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from django.db.models import Model, QuerySet

from cleanup_project.base import clock
from cleanup_project.base.canonical import instant
from retention import governing, holds, listings
from retention.eligibility import (
    WORDS,
    DispositionFacts,
    EventFacts,
    HoldFacts,
    Reason,
    Surroundings,
    Verdict,
    VersionFacts,
    belongs,
    judge,
)
from retention.exceptions import TooMuch
from retention.models import Disposition, ObjectVersion, PolicyRevision, RetentionEvent, RetentionPolicy, Role, Tenant

Row = TypeVar("Row", bound=Model)
READ: Final = 5_000  # versions or events around those asked about, of each kind, where somebody waits for the answer
# What scans leave out whatever the time: it travels with another, or something keeps it without an end.
NEVER_SCANNED = frozenset({
    Reason.GONE, Reason.TRAVELS, Reason.UNSCHEDULED, Reason.PERMANENT, Reason.SUSPENDED, Reason.AWAITING_EVENT,
    Reason.UNKNOWN_DATE, Reason.HELD,
})  # fmt: skip


def facts_of(row: ObjectVersion) -> VersionFacts:
    return VersionFacts(
        id=row.pk,
        tenant_id=row.tenant_id,
        bucket_id=row.bucket_id,
        key=row.key,
        version_id=row.version_id,
        retention_class=row.retention_class,
        series=row.series,
        stored_at=row.stored_at,
        dated_at=row.dated_at,
        present=row.gone_at is None,
        is_delete_marker=row.is_delete_marker,
        is_derivative=row.role == Role.DERIVATIVE,
        original_bucket_id=row.original_bucket_id,
        original_key=row.original_key,
        original_version_id=row.original_version_id,
    )


def surroundings_of_each(rows: Sequence[ObjectVersion], most: int | None = None) -> dict[int, Surroundings]:
    """What the catalogue holds around versions, read through its indexes, a query for each bucket and tenant.

    `most`: of the rows that a query reads; TooMuch where there are more.
    """
    present = ObjectVersion.objects.present()
    originals = [row for row in rows if row.role == Role.ORIGINAL]
    derivatives = [row for row in rows if row.role == Role.DERIVATIVE]
    same = grouped(ObjectVersion.objects.all(), ("bucket_id", "key"), [(row.bucket_id, row.key) for row in rows], most)
    made_of = grouped(
        present.filter(role=Role.DERIVATIVE),
        ("original_bucket_id", "original_key"),
        [(row.bucket_id, row.key) for row in originals],
        most,
    )
    parents = grouped(
        present, ("bucket_id", "key"), [(row.original_bucket_id, row.original_key) for row in derivatives], most
    )
    series = grouped(
        present.filter(standalone=True, is_delete_marker=False),
        ("tenant_id", "series"),
        [(row.tenant_id, row.series) for row in rows if row.tenant_id],
        most,
    )
    places = defaultdict[int, set[int]](set)
    for row in rows:
        if row.tenant_id:
            places[row.tenant_id] |= {row.bucket_id, row.original_bucket_id or row.bucket_id}
    events = {tenant: events_of(tenant, buckets, most) for tenant, buckets in places.items()}
    along = {row.pk: made_of.get((row.bucket_id, row.key), []) for row in originals}
    decided = defaultdict[int, list[DispositionFacts]](list)
    for each in dispositions_of([row.pk for row in rows] + [each.id for found in along.values() for each in found]):
        decided[each.object_version_id].append(each)
    return {
        row.pk: Surroundings(
            same_key=same.get((row.bucket_id, row.key), []),
            series=series.get((row.tenant_id, row.series), []),
            derivatives=along.get(row.pk, []),
            originals=parents.get((row.original_bucket_id, row.original_key), [])
            if row.role == Role.DERIVATIVE
            else [],
            events=events.get(row.tenant_id, []) if row.tenant_id else [],
            dispositions=[
                told for pk in (row.pk, *(each.id for each in along.get(row.pk, []))) for told in decided[pk]
            ],
        )
        for row in rows
    }


Place = tuple[int | None, str]  # a bucket or tenant, and a key or series in it


def grouped(
    rows: QuerySet[ObjectVersion], by: tuple[str, str], places: Iterable[Place], most: int | None = None
) -> dict[Place, list[VersionFacts]]:
    """Facts of the rows at these places, by place; one query for each first part, whose index then leads to the second."""
    wanted = defaultdict[int | None, set[str]](set)
    for first, second in places:
        wanted[first].add(second)
    found = defaultdict[Place, list[VersionFacts]](list)
    for first, seconds in wanted.items():
        for row in up_to(most, rows.filter(**{by[0]: first, f"{by[1]}__in": seconds})):
            found[first, getattr(row, by[1])].append(facts_of(row))
    return found


def up_to(most: int | None, rows: QuerySet[Row]) -> Iterable[Row]:
    """All of the rows. Raises TooMuch where they are more than that."""
    if most is None:
        return rows
    found = list(rows[: most + 1])
    if len(found) > most:
        raise TooMuch(
            f"More than {most:,} versions or events bear upon this, which is more than is read for one answer: let "
            "`manage.py why` tell it on the server."
        )
    return found


def events_of(tenant_id: int, bucket_ids: Iterable[int], most: int | None = None) -> list[EventFacts]:
    """The tenant's retention events that any of its policies over these buckets waits for, withdrawn ones too."""
    awaited = PolicyRevision.objects.filter(
        tenant=tenant_id, published_at__isnull=False, bucket_ids__overlap=sorted(bucket_ids)
    ).exclude(event_type="")
    types, reached = set[str](), set[int]()
    for event_type, buckets in awaited.values_list("event_type", "bucket_ids"):
        types.add(event_type)
        reached.update(buckets)  # generations that are kept are ranked in all of them
    rows = RetentionEvent.objects.filter(tenant=tenant_id, event_type__in=types, bucket_ids__overlap=sorted(reached))
    return [
        EventFacts(
            id=row.pk,
            event_type=row.event_type,
            tenant_id=row.tenant_id,
            bucket_ids=tuple(row.bucket_ids),
            prefixes=tuple(row.prefixes),
            retention_classes=tuple(row.retention_classes),
            occurred_at=row.occurred_at,
            posted_at=row.posted_at,
            withdrawn_at=row.withdrawn_at,
        )
        for row in up_to(most, rows.order_by("pk"))
    ]


def dispositions_of(ids: Sequence[int]) -> list[DispositionFacts]:
    """What was decided about these versions and is in force."""
    rows = Disposition.objects.in_force().filter(object_version__in=ids).select_related("by").order_by("pk")
    return [
        DispositionFacts(row.pk, row.object_version_id, row.until, row.by.get_username(), row.reason) for row in rows
    ]


def why(row: ObjectVersion, as_of: datetime | None = None, most: int | None = None) -> Verdict:
    """Judge one catalogued version now, or as of another time with today's catalogue, policies, holds and decisions.

    `most` as in `surroundings_of_each`.
    """
    return why_each([row], as_of or clock.now(), most)[row.pk]


def why_each(rows: Sequence[ObjectVersion], as_of: datetime, most: int | None = None) -> dict[int, Verdict]:
    """The same of many; `most` as in `surroundings_of_each`."""
    around = surroundings_of_each(rows, most)
    ruling = dict[Tenant | None, tuple[list[governing.Governing], list[HoldFacts]]]({None: ([], [])})
    for tenant in {row.tenant for row in rows if row.tenant}:
        ruling[tenant] = governing.of_tenant(tenant, as_of), holds.in_force(tenant.pk)
    return {row.pk: judge(facts_of(row), around[row.pk], *ruling[row.tenant], as_of) for row in rows}


def coupling(row: ObjectVersion, most: int | None = None) -> str:
    """For a derivative: which version it goes with, or why it is left alone. `most` as in `surroundings_of_each`."""
    place = row.original_bucket_id, row.original_key
    versions = grouped(ObjectVersion.objects.all(), ("bucket_id", "key"), [place], most).get(place, [])
    parents = [each for each in versions if each.present and belongs(facts_of(row), each, versions)]
    if not any(each.present and not each.is_delete_marker for each in versions):
        return "Its original is not in the catalogue, so it is judged as an original."
    if not parents:
        return "It cannot be told from which version of its original it was made, so it is left alone."
    return f"It goes with version {parents[0].version_id} of {row.original_key}."


def explain(row: ObjectVersion, verdict: Verdict, most: int | None = None) -> Iterator[str]:
    """The verdict in sentences, the answer first. `most` as in `surroundings_of_each`."""
    yield WORDS[verdict.reason]
    if row.role == Role.DERIVATIVE:
        yield coupling(row, most)
    for finding in verdict.findings:
        since = f", ends {instant(finding.eligible_since)}" if finding.eligible_since else ""
        started = f"clock started {instant(finding.trigger_at)}" if finding.trigger_at else "clock not started"
        if finding.event:
            started += f" by the event {finding.event.event_type} {finding.event.id}"
        elif finding.rule.waits:
            started += f" (it waits for the event {finding.rule.event_type})"
        said = "Its retention has ended." if finding.reason is Reason.ELIGIBLE else WORDS[finding.reason]
        yield f"{finding.rule.label}: {started}{since}. {said}"
    if verdict.governed_by and len(verdict.findings) > 1:
        yield f"The longest retention wins: {verdict.governed_by.label} governs."
    names = {target.id: f"{target.key} @ {target.version_id}" for target in verdict.targets}
    for each in verdict.dispositions:
        kept = f"Kept until {instant(each.until)}" if each.until else "Exempt from destruction until that is ended"
        about = "" if each.object_version_id == row.pk else f", for {names[each.object_version_id]}"
        yield f"{kept}{about}: decided by {each.by} (disposition {each.id}). {each.reason}"
    yield from schedule_of(verdict)
    for hold in verdict.holds:
        yield f"Held by matter {hold.matter} (hold {hold.id})."
    if verdict.eligible_since and verdict.reason is Reason.NOT_YET:
        yield f"Retention ends {instant(verdict.eligible_since)}."
    for target in verdict.targets[1:]:
        yield f"Would take along {target.key} @ {target.version_id}."


def next_evaluation(verdict: Verdict) -> tuple[str, datetime] | None:
    """The policy that opens the next run over this version, and when; None where no schedule will ever look at it."""
    rule = verdict.governed_by
    if rule is None or verdict.reason in NEVER_SCANNED:
        return None
    now = clock.now()
    begin = max(now, verdict.eligible_since or now)
    return rule.policy, RetentionPolicy.objects.get(pk=rule.policy_id).next_slot(begin)


def maximum(verdict: Verdict) -> datetime | None:
    """When it should be gone at the latest, as the revision says that governs it; None where there is no such time."""
    if verdict.governed_by is None:
        return None
    limits = listings.maxima([verdict.governed_by])
    return listings.latest(verdict.reason, verdict.eligible_since, limits.get(verdict.governed_by.revision_id))


def schedule_of(verdict: Verdict) -> Iterator[str]:
    """When it is looked at next, and whether it is there for too long."""
    evaluation, latest = next_evaluation(verdict), maximum(verdict)
    if evaluation is not None:
        yield f"The next run of {evaluation[0]} looks at it at {instant(evaluation[1])}."
    elif verdict.reason is not Reason.GONE:
        yield "No scheduled run looks at it while that is so."
    if latest is not None and latest < clock.now():
        yield f"Past maximum: it should have been gone by {instant(latest)}."


def as_json(row: ObjectVersion, verdict: Verdict, as_of: datetime, most: int | None = None) -> dict[str, Any]:
    evaluation, latest = next_evaluation(verdict), maximum(verdict)
    return {
        "bucket": row.bucket.name,
        "key": row.key,
        "version_id": row.version_id,
        "as_of": instant(as_of),
        "reason": verdict.reason.value,
        "eligible": verdict.eligible,
        "eligible_since": instant(verdict.eligible_since) if verdict.eligible_since else None,
        "governed_by": verdict.governed_by.label if verdict.governed_by else None,
        "next_evaluation": instant(evaluation[1]) if evaluation else None,
        "past_maximum_since": instant(latest) if latest and latest < as_of else None,
        "findings": [
            {
                "revision": finding.rule.label,
                "reason": finding.reason.value,
                "trigger": finding.rule.trigger,
                "event_type": finding.rule.event_type,
                "event": finding.event.id if finding.event else None,
                "trigger_at": instant(finding.trigger_at) if finding.trigger_at else None,
                "eligible_since": instant(finding.eligible_since) if finding.eligible_since else None,
            }
            for finding in verdict.findings
        ],
        "dispositions": [
            {
                "disposition": each.id,
                "object_version": each.object_version_id,
                "until": instant(each.until) if each.until else None,
                "by": each.by,
                "reason": each.reason,
            }
            for each in verdict.dispositions
        ],
        "holds": [{"hold": hold.id, "matter": hold.matter} for hold in verdict.holds],
        "targets": [{"key": target.key, "version_id": target.version_id} for target in verdict.targets],
        "explanation": list(explain(row, verdict, most)),
    }
