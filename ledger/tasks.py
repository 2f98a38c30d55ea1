"""What the queue calls. Each entry point calls one verb."""

import time

from cleanup_project.base import limits, queue
from ledger import manifest


@queue.task(queue=queue.WORK)
def freeze(run_id: int) -> None:
    """Freeze parts of a run until its manifest is sealed, a slice at a time."""
    until = time.monotonic() + limits.DRAIN_BUDGET
    while manifest.freeze_part(run_id) is not None:
        if time.monotonic() > until:
            return queue.wake("ledger.tasks.freeze", run_id)
