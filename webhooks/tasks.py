"""What the queue calls. A message is a wake-up: it says nothing of what there is to do."""

from cleanup_project.base import queue
from webhooks import dispatch as dispatching
from webhooks.limits import TASK_TIMEOUT


@queue.task(queue=queue.WORK, timeout=TASK_TIMEOUT)
def dispatch() -> None:
    """Send what is due, and ring for what did not fit into the budget."""
    if dispatching.dispatch().more:
        queue.wake("webhooks.tasks.dispatch")
