"""What the queue calls. Each entry point calls one verb."""

from cleanup_project.base import limits, queue
from retention import preview as previewing
from retention.sources import upkeep


@queue.task(queue=queue.WORK)
def preview(preview_id: int) -> None:
    """Count a preview until it is exact, a slice at a time."""
    if not previewing.count_slice(preview_id, budget_seconds=limits.DRAIN_BUDGET):
        queue.wake("retention.tasks.preview", preview_id)


@queue.task(queue=queue.WORK)
def sync(bucket_id: int) -> None:
    """List a bucket, a slice at a time."""
    if not upkeep.list_slice(bucket_id, budget_seconds=limits.DRAIN_BUDGET):
        queue.wake("retention.tasks.sync", bucket_id)
