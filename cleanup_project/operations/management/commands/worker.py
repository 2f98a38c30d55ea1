"""`manage.py worker`: the supervised clusters that do the work."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from cleanup_project.base import limits, queue
from cleanup_project.operations import supervisor


class Command(BaseCommand):
    help = (
        "Run the queues of this installation and restart a cluster that makes no progress. SIGTERM or Ctrl-C lets tasks "
        "end first; a second one kills them. docs/operations.md says how to run it under systemd or in a container."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queue", choices=[queue.CONTROL, queue.WORK], help="One queue alone; default: both.")
        parser.add_argument(
            "--stall",
            type=float,
            default=limits.STALL,
            metavar="SECONDS",
            help=f"Without progress for so long, a cluster is started again; default {limits.STALL}. Less than "
            f"{limits.TASK_TIMEOUT} ends tasks that may still run.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        names = [options["queue"]] if options["queue"] else [queue.CONTROL, queue.WORK]
        supervisor.supervise(names, stall=options["stall"])
