"""What the queue calls. A round of watching is short; what waits for a mail server is not done where the tick is."""

from cleanup_project.base import queue
from cleanup_project.operations.watch import judging, telling


@queue.task(queue=queue.CONTROL)
def watch() -> None:
    """Once a minute: compare what waits with its deadlines, write the events of alarms, and have e-mails sent."""
    try:
        judging.judge()
    finally:
        try:
            telling.announce()
        finally:
            telling.ring()


@queue.task(queue=queue.WORK)
def mail() -> None:
    """Send the e-mails about alarms that are owed."""
    telling.mail()
