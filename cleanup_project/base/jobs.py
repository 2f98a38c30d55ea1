"""Bulk jobs: one decision of a person about many rows, carried out item by item, as fast as its rate allows.

The set is frozen in the transaction that makes the job, so that what is done is what was confirmed; `jobwork` does it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import connection, transaction
from django.db.models import Model, QuerySet
from django.db.models.functions import Now

from cleanup_project.base import audit, queue, tenancy
from cleanup_project.base.models import FASTEST_JOB, BulkJob, User

TASK: Final = "cleanup_project.base.tasks.bulk_job"
MOST: Final = 250_000  # items of one job
RATE: Final = 50  # items a second, unless asked for otherwise
DRIFT: Final = 100  # one in so many may have come or gone since the person looked
LANES_LOCK_CLASS: Final = 0x4A4F4253  # first key of the advisory locks, one for each kind of job
GONE: Final = "No application does jobs of the kind {}: the product was changed since."
State = BulkJob.State


class JobRefused(Exception):
    """A request about a bulk job that cannot be carried out, with words that say what to do; nothing was changed."""

    def __init__(self, words: str, *, field: str | None = None) -> None:
        super().__init__(words)
        self.field = field


class TokenUsed(JobRefused):
    """The token has made another job."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one item: a code of at most 32 characters, by which outcomes are counted, and words for a person."""

    code: str
    words: str = ""


# (ids, in whose name, reason, **the order's details) → the outcome of each id. Called inside a transaction, which its
# effects belong to.
Verb = Callable[..., Mapping[int, Outcome]]


@dataclass(frozen=True, slots=True)
class Kind:
    """What a job of this kind does to its items, the right that it takes, as base.operate, and the way to their tenant.

    `well`: the outcomes of items that were done; any other says why one was not.
    """

    verb: Verb
    label: str
    right: str
    subject_type: str
    well: frozenset[str]
    tenant_path: str


@dataclass(frozen=True, slots=True)
class Order:
    """What a person confirmed: the rows, in words too, how many they saw, why, how fast, and the token of their form.

    `details` are what else the verb is told, by name. Of jobs of a kind that share one of `lanes`, one is open at a time.
    """

    rows: QuerySet[Any]
    selection: str
    expected: int
    reason: str
    token: UUID
    rate: int = RATE
    details: Mapping[str, str] = field(default_factory=dict)
    lanes: Collection[str] = ()

    @property
    def asked(self) -> dict[str, int]:
        return {"expected": self.expected, "rate": self.rate}


KINDS: Final[dict[str, Kind]] = {}


def register(
    kind: str,
    verb: Verb,
    label: str,
    right: str,
    subject: type[Model],
    well: Collection[str] = (),
    tenant_path: str = "tenant__code",
) -> None:
    """Let jobs of this kind be made and carried out; called when an application is loaded, in every process alike."""
    KINDS[kind] = Kind(verb, label, right, subject._meta.label_lower, frozenset(well), tenant_path)


def create(kind: str, order: Order, *, by: User) -> BulkJob:
    """Freeze the set, as far as it is of this person's tenants, and begin. The same token again returns the job that it made.

    Raises TokenUsed where that is another's or of another kind; JobRefused for who may not, without a reason, for a rate
    outside of 1 to FASTEST_JOB, where another job is open in one of its lanes, and where the set is empty, larger than MOST,
    or no longer about as large as the person saw it.
    """
    permitted(kind, by)
    check_reason(order.reason)
    check_rate(order.rate)
    with transaction.atomic():
        job, new = BulkJob.objects.get_or_create(
            token=order.token,
            defaults={
                "kind": kind,
                "subject_type": KINDS[kind].subject_type,
                "selection": order.selection,
                "reason": order.reason,
                "requested_by": by,
                "in_charge": by,
                "rate": order.rate,
                "asked": order.asked,
                "details": dict(order.details),
                "lanes": sorted(order.lanes),
                "tenants": by.tenants,
            },
        )
        if not new:
            return its_job(job, kind, by)
        check_lanes(job)
        total = freeze(job, tenancy.scoped(order.rows, by, KINDS[kind].tenant_path))
        check_total(total, order.expected)
        BulkJob.objects.filter(pk=job.pk).update(total=total)
        told = {"kind": kind, "selection": order.selection, "total": total, "seen": order.expected, "rate": order.rate}
        audit.record(action="bulkjob.created", subject=job, by=by, reason=order.reason, after=told)
        queue.wake(TASK, job.pk)
    job.refresh_from_db()
    return job


def made(kind: str, token: UUID, *, by: User) -> BulkJob | None:
    """The job of this kind that the token has made, before anything is counted for it. Raises JobRefused, TokenUsed."""
    permitted(kind, by)
    job = BulkJob.objects.filter(token=token).first()
    return its_job(job, kind, by) if job else None


def its_job(job: BulkJob, kind: str, by: User) -> BulkJob:
    if (job.kind, job.requested_by_id) != (kind, by.pk):
        raise TokenUsed("This form or key was used already, for another job: open the form anew, or use a new key.")
    return job


def check_lanes(job: BulkJob) -> None:
    """Of two who begin at once one waits here, and then finds the other."""
    if not job.lanes:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [LANES_LOCK_CLASS, job.kind])
    others = BulkJob.objects.filter(kind=job.kind, finished_at=None, lanes__overlap=job.lanes).exclude(pk=job.pk)
    other = others.order_by("pk").first()
    if other is not None:
        raise JobRefused(
            f"{other} of {other.requested_by} is {other.state} and does some of the same ({other.selection}): let it end, "
            "change its rate, or cancel it."
        )


def freeze(job: BulkJob, rows: QuerySet[Any]) -> int:
    """Make the rows the job's items, in order of their ids, in one statement; returns how many they are."""
    try:
        chosen, parameters = rows.order_by().values_list("pk").query.sql_with_params()
    except EmptyResultSet:
        return 0
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO base_bulkitem (job_id, ordinal, subject_id, outcome, detail) "  # noqa: S608 - Django's own
            f"SELECT %s, row_number() OVER (ORDER BY id), id, '', '' FROM ({chosen}) AS chosen (id) LIMIT %s",
            [job.pk, *parameters, MOST + 1],
        )
        return int(cursor.rowcount)


def check_total(total: int, expected: int) -> None:
    if total == 0:
        raise JobRefused("Nothing matches any more: look again.")
    if total > MOST:
        raise JobRefused(f"More than {MOST:,} match: narrow what is chosen, and make several jobs.")
    if abs(total - expected) > expected // DRIFT:
        raise JobRefused(
            f"You saw {expected:,}, and {total:,} match now. That differs by more than one in {DRIFT}: look again, then "
            "confirm what you see."
        )


def pause(*, job: BulkJob, by: User, reason: str) -> BulkJob:
    """Let no further item begin. Raises JobRefused."""
    deciding(job, by)
    check_reason(reason)
    with transaction.atomic():
        row = locked(job)
        if row.state != State.RUNNING:
            raise JobRefused(f"{row} is {row.state}, so it cannot be paused.")
        changed(row, "paused", by, reason, state=State.PAUSED, paused_because=reason)
    return again(job)


def resume(*, job: BulkJob, by: User) -> BulkJob:
    """Go on, in the name of whoever resumes it. Raises JobRefused."""
    deciding(job, by)
    with transaction.atomic():
        row = locked(job)
        if row.state != State.PAUSED:
            raise JobRefused(f"{row} is {row.state}, so there is nothing to resume.")
        changed(row, "resumed", by, "", state=State.RUNNING, paused_because="", in_charge=by, worked_at=Now())
        queue.wake(TASK, row.pk)
    return again(job)


def cancel(*, job: BulkJob, by: User, reason: str) -> BulkJob:
    """End it; what was done stays done, and no item is done any more. Raises JobRefused."""
    deciding(job, by)
    check_reason(reason)
    with transaction.atomic():
        row = locked(job)
        if row.finished_at is not None:
            raise JobRefused(f"{row} is {row.state} already.")
        changed(row, "cancelled", by, reason, state=State.CANCELLED, paused_because="", finished_at=Now())
    return again(job)


def set_rate(*, job: BulkJob, by: User, rate: int) -> BulkJob:
    """Change how many items a second it does, from its next chunk on. Raises JobRefused."""
    deciding(job, by)
    check_rate(rate)
    with transaction.atomic():
        row = locked(job)
        if row.finished_at is not None:
            raise JobRefused(f"{row} is {row.state} already.")
        changed(row, "rate_changed", by, "", rate=rate)
        # A worker that came while the row was locked has gone away.
        queue.wake(TASK, row.pk)
    return again(job)


def changed(row: BulkJob, act: str, by: User | None, reason: str, **fields: Any) -> None:
    """Write what an act changes, and the record of it. The job's row is locked."""
    before = {"state": row.state, "rate": row.rate, "done": row.done, "in_charge": str(row.in_charge)}
    BulkJob.objects.filter(pk=row.pk).update(**fields)
    row.refresh_from_db()
    after = {"state": row.state, "rate": row.rate, "in_charge": str(row.in_charge), "outcomes": row.outcomes}
    audit.record(action=f"bulkjob.{act}", subject=row, by=by, reason=reason, before=before, after=after)


def locked(job: BulkJob) -> BulkJob:
    """Waits for a chunk that is being done."""
    return BulkJob.objects.select_for_update(no_key=True).get(pk=job.pk)


def again(job: BulkJob) -> BulkJob:
    job.refresh_from_db()
    return job


def permitted(kind: str, by: User) -> None:
    known = KINDS.get(kind)
    if known is None:
        raise JobRefused(GONE.format(kind))
    if not by.has_perm(known.right):
        raise JobRefused(f"{by} may not do that to many at once: it needs the right {known.right}.")


def deciding(job: BulkJob, by: User) -> None:
    permitted(job.kind, by)
    if not tenancy.within(job.tenants, by):
        raise JobRefused(f"{by} may not decide about it: it is about more than the tenants of {by}.")


def check_reason(reason: str) -> None:
    if not reason.strip():
        raise JobRefused("State a reason: it is kept for ever.", field="reason")


def check_rate(rate: int) -> None:
    if not 1 <= rate <= FASTEST_JOB:
        raise JobRefused(f"Choose a rate of 1 to {FASTEST_JOB:,} items a second.", field="rate")
