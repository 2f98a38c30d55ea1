"""What the queue calls. Each entry point calls one verb."""

from django.conf import settings

from cleanup_project.base import limits, queue
from ledger import closing, exports, inflight, manifest, schedule, stops
from ledger import compare as comparing
from ledger import drain as draining
from ledger import publish as publishing
from ledger import reconcile as reconciling
from ledger import sweep as sweeping


@queue.task(queue=queue.CONTROL)
def tick() -> None:
    """Once a minute: open the runs that are due, and have a sweep made and what waits looked at."""
    queue.wake("ledger.tasks.sweep")
    if settings.TICKED_TASK:
        queue.wake(settings.TICKED_TASK)
    schedule.tick()


@queue.task(queue=queue.WORK)
def freeze(run_id: int) -> None:
    """Freeze parts of a run until its manifest is sealed, a slice at a time."""
    if not manifest.freeze_slice(run_id, budget_seconds=limits.DRAIN_BUDGET):
        queue.wake("ledger.tasks.freeze", run_id)


@queue.task(queue=queue.WORK)
def publish(run_id: int) -> None:
    """Publish what may be ahead, and close the run when it has come to its end."""
    publishing.publish(run_id)
    closing.close(run_id)


@queue.task(queue=queue.WORK)
def drain(bucket_id: int) -> None:
    """Work through what is due in a bucket, and ring for what follows."""
    drained = draining.drain(bucket_id)
    draining.after(bucket_id, more=drained.more)


@queue.task(queue=queue.WORK)
def compare(comparison_id: int) -> None:
    """Compare two manifests, and keep the result."""
    comparing.carry_out(comparison_id)


@queue.task(queue=queue.WORK)
def notify() -> None:
    """Mark commands whose notices are all acknowledged."""
    closing.notify()


@queue.task(queue=queue.WORK)
def reconcile() -> None:
    """Look at what late evidence asks about."""
    reconciling.look_again()


@queue.task(queue=queue.WORK)
def hold_placed(hold_id: int) -> None:
    """Report what is in flight under a new hold, and hold what waits."""
    inflight.placed(hold_id)


@queue.task(queue=queue.WORK)
def stop_pressed(switch_id: int) -> None:
    """Report what is in flight under a stop switch that was pressed."""
    stops.pressed(switch_id)


@queue.task(queue=queue.WORK)
def export(export_id: int) -> None:
    """Make files of an export of receipts, a slice at a time."""
    if not exports.work_slice(export_id, budget_seconds=limits.DRAIN_BUDGET):
        queue.wake("ledger.tasks.export", export_id)


@queue.task(queue=queue.CONTROL)
def sweep() -> None:
    """Ring again for whatever waits."""
    sweeping.sweep()
