"""Many items taken out of a sealed manifest at once: a bulk job, while which the run cannot be approved.

With the job its first item is taken out, in one transaction: what was approved is void from then on, and what remains is not
counted before the job has ended. A hundred thousand items, each with its record, take minutes: too long for a page.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, Max, Min, OuterRef, QuerySet, Subquery

from cleanup_project.base import audit, jobs, paginator
from cleanup_project.base.jobs import Outcome
from cleanup_project.base.models import FASTEST_JOB, BulkJob, User
from ledger import dispositions
from ledger.dispositions import Chosen, Kind, Review
from ledger.exceptions import LedgerError
from ledger.models import CleanupRun, ItemDisposition, ManifestItem, ManifestReview
from retention.models import Bucket, ObjectVersion, PolicyRevision

RIGHT: Final = "base.approve_run"
AT_ONCE: Final = 1000  # so many or fewer are taken out by the page itself
COUNT_BUDGET_MS: Final = 5000
JOBS: Final = {Kind.EXEMPT: "exempt_items", Kind.EXTEND: "extend_items"}
DONE: Final = {Kind.EXEMPT: Outcome("exempted"), Kind.EXTEND: Outcome("extended")}
ALREADY: Final = Outcome("already", "It was taken out of the run already.")


def rows(run: CleanupRun, chosen: Chosen) -> QuerySet[ManifestItem]:
    """The chosen items that still go with the run. Raises LedgerError where nothing is named: that never means all."""
    if not chosen.words():
        raise LedgerError("Name at least one condition. To keep everything, cancel the run.")
    disposed = ItemDisposition.objects.filter(run=OuterRef("run"), ordinal=OuterRef("ordinal"))
    # Probed one by one: joined, the planner would read the whole catalogue for a run that it has no figures of.
    original = ObjectVersion.objects.filter(pk=OuterRef("object_version_id"))
    found = ManifestItem.objects.filter(~Exists(disposed), run=run).alias(
        bucket=Subquery(original.values("bucket_id")[:1]), key=Subquery(original.values("key")[:1])
    )
    named: dict[str, Any] = {
        "pk__in": chosen.items,
        "bucket": chosen.bucket_id,
        "key__startswith": chosen.prefix,
        "revision": chosen.revision_id,
        "eligible_since__gte": chosen.since_from,
        "eligible_since__lt": chosen.since_to,
    }
    return found.filter(**{name: value for name, value in named.items() if value not in (None, "", ())})


def count(run: CleanupRun, chosen: Chosen) -> int:
    """How many that is; one more than a job's most means more. Raises OperationalError where even that takes too long."""
    with transaction.atomic(), paginator.limited(COUNT_BUDGET_MS):
        return rows(run, chosen).order_by().values("pk")[: jobs.MOST + 1].count()


def words(chosen: Chosen) -> str:
    """What is chosen, for the record and for people."""
    if chosen.items:
        return "chosen one by one"
    told = []
    if chosen.bucket_id is not None:
        told.append(f"in {Bucket.objects.get(pk=chosen.bucket_id)}")
    if chosen.prefix:
        told.append(f"under {chosen.prefix!r}")
    if chosen.revision_id is not None:
        told.append(f"of {PolicyRevision.objects.select_related('policy').get(pk=chosen.revision_id)}")
    if chosen.since_from:
        told.append(f"eligible from {chosen.since_from.isoformat()}")
    if chosen.since_to:
        told.append(f"eligible before {chosen.since_to.isoformat()}")
    return ", ".join(told)


def begin(*, run: CleanupRun, chosen: Chosen, review: Review, expected: int, token: UUID) -> BulkJob:
    """A bulk job that takes all of the chosen out; `expected` is how many the person saw. As `jobs.create`.

    Raises LedgerError for a run that is authorised or has ended, and while another job reviews it.
    """
    selection = f"{run}: {words(chosen)}"
    order = jobs.Order(rows(run, chosen), selection, expected, review.reason, token, FASTEST_JOB)
    with transaction.atomic():
        CleanupRun.objects.select_for_update(no_key=True).get(pk=run.pk)
        same = ManifestReview.objects.filter(run=run, job__token=token).first()
        if same is not None:
            return same.job
        if dispositions.under_review(run.pk) is not None:
            raise LedgerError("A bulk job is taking items out of this run already: let it end, or cancel it.")
        job = jobs.create(JOBS[review.kind], order, by=review.by)
        ManifestReview.objects.create(run=run, job=job, kind=review.kind, until=review.until)
        told = {"job": job.pk, "items": job.total, "kind": review.kind}
        audit.record(action="run.review", subject=run, by=review.by, reason=review.reason, after=told)
        first = job.items.order_by("ordinal").values_list("subject_id", flat=True)[0]
        take_out(run.pk, [first], review)
    return job


def take_out(run_id: int, ids: Sequence[int], review: Review) -> None:
    """All of these, at most a job's chunk, or none: in the caller's transaction, with one lock of their originals in order.

    Without a record of each chunk, since the job has its own.
    """
    found = ManifestItem.objects.filter(pk__in=ids, run=run_id).aggregate(first=Min("ordinal"), last=Max("ordinal"))
    stretch = (found["first"], found["last"])
    dispositions.dispose_stretch(run_id, stretch, Chosen(items=ids), review, on_record=False)


def carry_out(ids: Sequence[int], by: User, reason: str, *, kind: Kind) -> Mapping[int, Outcome]:
    """What a job does to its next items, all of one run. Of several, all are taken out, or it raises LedgerError."""
    items = ManifestItem.objects.in_bulk(ids)
    run_id = next(iter(items.values())).run_id
    review = ManifestReview.objects.filter(run=run_id, kind=kind, job__finished_at=None).latest("pk")
    gone = ItemDisposition.objects.filter(run=run_id, ordinal__in=[each.ordinal for each in items.values()])
    before = set(gone.values_list("item_id", flat=True))
    left = [pk for pk in ids if pk not in before]
    try:
        with transaction.atomic():
            if left:
                take_out(run_id, left, Review(kind, by, reason, review.until))
    except LedgerError as refusal:
        if len(ids) > 1:
            raise  # the job then does them one by one
        return {ids[0]: Outcome("refused", str(refusal))}
    done = {*left, review.job.items.values_list("subject_id", flat=True).get(ordinal=1)}  # its first went as it began
    return {pk: DONE[kind] if pk in done else ALREADY for pk in ids}


for each in Kind:
    jobs.register(
        JOBS[each],
        partial(carry_out, kind=each),
        f"Items {each.label}",
        RIGHT,
        ManifestItem,
        {DONE[each].code},
        "run__tenant__code",
    )
