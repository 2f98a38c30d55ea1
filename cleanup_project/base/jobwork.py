"""Carrying bulk jobs out: chunk after chunk, as fast as the job's rate allows.

A chunk is one transaction that holds the job's row, the effects and the outcomes: whatever stops where, nothing is done
twice or left out, and of two workers one goes away. The job's row is the first lock of that transaction.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

import structlog
from django.db import OperationalError, connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from cleanup_project.base import clock, sqlfiles, tenancy
from cleanup_project.base.jobs import GONE, KINDS, Kind, Outcome, State, again, changed
from cleanup_project.base.models import BulkItem, BulkJob

CHUNK: Final = 200  # items in one transaction, and never more than a second's worth
DETAIL_LIMIT: Final = 500
FAILED: Final = "failed"

log = structlog.get_logger(__name__)


class NotTogether(Exception):
    """The verb broke on one of so many items; nothing was done."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def work_slice(job_id: int, *, budget_seconds: float, wait: Callable[[float], object] = time.sleep) -> bool:
    """Do chunks of a job for so long; whether nothing is left here: it has ended, is paused, or is another worker's."""
    until = time.monotonic() + budget_seconds
    while (seconds := work_chunk(job_id)) is not None:
        if time.monotonic() + seconds >= until:
            return False
        if seconds > 0:
            wait(seconds)
    return True


def work_chunk(job_id: int) -> float | None:
    """Do the next items together; returns the seconds until its rate allows more, or None: nothing is left here.

    Where that fails they are done one by one, so that an item on which the verb breaks stops no other: each in its own
    transaction, since an item's last locks come behind the first ones of the next.
    """
    try:
        return work_items(job_id, CHUNK)
    except NotTogether as failure:
        log.info("bulk items are done one by one", job=job_id, items=failure.number, error=str(failure.__cause__))
        seconds: float | None = 0.0
        for _ in range(failure.number):
            if seconds is not None:
                seconds = work_items(job_id, 1, resting=False)
        return seconds


def work_items(job_id: int, most: int, *, resting: bool = True) -> float | None:
    """Do so many of the next items in one transaction, as `work_chunk`. `resting`: not before its rate allows it."""
    with transaction.atomic():
        running = BulkJob.objects.select_for_update(no_key=True, skip_locked=True).filter(state=State.RUNNING)
        job = running.filter(pk=job_id).first()
        if job is None:
            return None
        now = clock.now()
        if resting and job.free_at > now:
            return (job.free_at - now).total_seconds()
        why = in_the_way(job)
        if why:
            changed(job, "paused", None, why, state=State.PAUSED, paused_because=why)
            return None
        items = list(job.items.filter(ordinal__gt=job.done).order_by("ordinal")[: min(most, job.rate)])
        ended = outcomes_of(KINDS[job.kind], [each.subject_id for each in items], job)
        record(job, items, ended)
        took = timedelta(seconds=len(items) / job.rate)
        counts = Counter(job.outcomes) + Counter(each.code for each in ended)
        BulkJob.objects.filter(pk=job.pk).update(
            done=job.done + len(items), outcomes=counts, free_at=max(job.free_at, now) + took, worked_at=Now()
        )
        if job.done + len(items) == job.total:
            changed(again(job), "done", None, "", state=State.DONE, finished_at=Now())
            return None
        return 0.0


def in_the_way(job: BulkJob) -> str:
    """Why nobody may go on with it as it is, in words, or nothing."""
    kind = KINDS.get(job.kind)
    if kind is None:
        return GONE.format(job.kind)
    if not job.in_charge.has_perm(kind.right):
        return f"{job.in_charge} may not go on with it any more: somebody with the right {kind.right} can resume it."
    if not tenancy.within(job.tenants, job.in_charge):
        return f"It is about more than the tenants that {job.in_charge} decides for now: somebody else can resume it."
    return ""


def outcomes_of(kind: Kind, ids: Sequence[int], job: BulkJob) -> list[Outcome]:
    """Do these items together. Raises NotTogether where that fails; the failure of a single one is its outcome."""
    try:
        with transaction.atomic():
            done = kind.verb(ids, job.in_charge, job.reason, **job.details)
            return [done[each] for each in ids]
    except OperationalError:
        raise  # the database's trouble is no item's: the chunk comes again
    except Exception as error:
        if len(ids) > 1:
            raise NotTogether(len(ids)) from error
        log.exception("bulk item failed", kind=kind.label, subject=ids[0])
        return [Outcome(FAILED, f"{type(error).__name__}: {error}")]


def record(job: BulkJob, items: Sequence[BulkItem], ended: Sequence[Outcome]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "bulk_record.sql"),
            {
                "job": job.pk,
                "ordinals": [each.ordinal for each in items],
                "outcomes": [each.code for each in ended],
                # An error may quote anything; PostgreSQL's text cannot hold NUL.
                "details": [each.words.replace("\x00", "\\0")[:DETAIL_LIMIT] for each in ended],
            },
        )


def not_done_well(job: BulkJob) -> QuerySet[BulkItem]:
    """Its items that have an outcome which is not one of those that its verb is for: what somebody should look at."""
    kind = KINDS.get(job.kind)
    codes = [code for code in job.outcomes if code == FAILED or (kind is not None and code not in kind.well)]
    return job.items.filter(outcome__in=codes).order_by("outcome", "ordinal")
