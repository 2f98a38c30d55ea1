"""What the queue calls. Each entry point calls one verb."""

from cleanup_project.base import jobwork, limits, queue


@queue.task(queue=queue.WORK)
def bulk_job(job_id: int) -> None:
    """Go on with a bulk job, a slice at a time."""
    if not jobwork.work_slice(job_id, budget_seconds=limits.DRAIN_BUDGET):
        queue.wake("cleanup_project.base.tasks.bulk_job", job_id)


@queue.task(queue=queue.WORK)
def pulse() -> None:
    """Nothing: that it began shows that its cluster lives. Supervisors ring for it on the queue that they watch."""
