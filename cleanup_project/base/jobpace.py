"""How fast bulk jobs go: when one will have ended, and which ones nobody works at."""

from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models.functions import Now

from cleanup_project.base import alarms, clock, queue
from cleanup_project.base.jobs import TASK
from cleanup_project.base.models import Alarm, BulkJob

SPEED_OVER: Final = 1000  # the last items, by which its speed is judged
STUCK: Final = "bulkjob.stuck"
STUCK_AFTER: Final = timedelta(minutes=10)
STUCK_WORDS: Final = (
    "It stands still after {:,} of {:,} items, although workers are rung for. See whether they run, and what they log of the "
    "database: a lock or a time limit that its next items meet each time. It goes on by itself; pause or cancel it otherwise."
)


def ring() -> int:
    """Ring for every running job that nobody has worked at for a minute; returns how many. For sweeps.

    One that stands still for long, although it is rung for, raises an alarm until it goes on.
    """
    resting = BulkJob.objects.filter(state=BulkJob.State.RUNNING, worked_at__lt=Now() - queue.TICK_EVERY)
    with transaction.atomic():
        waiting = list(resting.order_by("worked_at"))
        for job in waiting:
            queue.wake(TASK, job.pk)
        stuck = {str(job.pk) for job in waiting if job.worked_at < clock.now() - STUCK_AFTER}
        for job in waiting:
            if str(job.pk) in stuck:
                alarms.notice(STUCK, job, STUCK_WORDS.format(job.done, job.total))
        Alarm.objects.open().filter(kind=STUCK).exclude(subject_id__in=stuck).update(cleared_at=Now())
    return len(waiting)


def ends_at(job: BulkJob) -> datetime | None:
    """When it will have ended, as fast as its last items went and its rate allows; None where it is not running.

    Reads two items, however many there are.
    """
    if job.state != BulkJob.State.RUNNING:
        return None
    first = max(job.done - SPEED_OVER, 1)
    times = [each for each in job.items.filter(ordinal__in=[first, job.done]).values_list("done_at", flat=True) if each]
    took = (max(times) - min(times)).total_seconds() if times else 0.0
    speed = min(job.rate, (job.done - first) / took) if took else job.rate
    return clock.now() + timedelta(seconds=(job.total - job.done) / speed)
