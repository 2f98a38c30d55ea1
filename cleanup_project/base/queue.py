"""The queue port: rings the bell for work that stands in the ledger, and marks the functions that answer it.

django-q2's ORM broker keeps its messages in the ledger's own database, so a message commits or vanishes with the caller's
transaction. Any other broker is told after the commit. A message is a hint: it may be lost, late, doubled or out of order,
and changes nothing but time.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from importlib import import_module
from typing import Any, Final

import structlog
from django.apps import AppConfig
from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.db.models import Min, Q, QuerySet
from django.db.models.functions import Greatest, Now
from django.dispatch import receiver
from django.utils.module_loading import import_string
from django_q.models import Failure, OrmQ, Schedule
from django_q.signals import post_execute
from django_q.tasks import async_task

from cleanup_project.base import heartbeats, limits

log = structlog.get_logger(__name__)

CONTROL: Final = "control"  # tick, sweep, housekeeping: short, and never behind long work
WORK: Final = "work"  # drain, dispatch, and long jobs in slices

ORM: Final = "django_q.brokers.orm.ORM"
LEFT_ALONE: Final = 5.0  # seconds, after a broker did not answer: a round of the sweep rings many times
TICK: Final = "ledger.tasks.tick"
PULSE: Final = "cleanup_project.base.tasks.pulse"
SCHEDULE: Final = {
    "name": "tick",
    "func": TICK,
    "schedule_type": Schedule.MINUTES,
    "minutes": 1,
    "repeats": -1,
    "args": None,
    "kwargs": None,
    "hook": None,
    "cron": None,
    "cluster": None,
    "intended_date_kwarg": None,
}
TICK_EVERY: Final = timedelta(minutes=1)
FAILURES_KEPT: Final = timedelta(days=30)


class Task:
    """A function that answers messages. Its result is dropped; trouble that it expects belongs in the ledger.

    A database that is away, or a lock that was not granted in time, is expected: the sweep rings again. Anything else
    that it raises is logged, and django-q2 keeps it as a Failure.
    """

    def __init__(self, verb: Callable[..., object], queue: str, timeout: int) -> None:
        self.verb = verb
        self.name = f"{verb.__module__}.{verb.__qualname__}"
        self.queue = queue
        self.timeout = timeout
        self.__doc__ = verb.__doc__

    def __call__(self, *arguments: int) -> None:
        begun = time.monotonic()
        with structlog.contextvars.bound_contextvars(task=self.name, arguments=arguments):
            heartbeats.task_started(is_tick=self.name == TICK)
            try:
                self.verb(*arguments)
            except OperationalError as error:
                log.warning("task gave way to the database", error=str(error))
            except Exception:
                log.exception("task failed")
                raise
            finally:
                heartbeats.task_ended()
                log.info("task ended", seconds=round(time.monotonic() - begun, 3))


def task(*, queue: str = WORK, timeout: int = limits.TASK_TIMEOUT) -> Callable[[Callable[..., object]], Task]:
    """Make a function of at most one integer an entry point of the queue that is named."""
    return lambda verb: Task(verb, queue, timeout)


def wake(task: str, argument: int | None = None) -> None:
    """Ring for `task` ("ledger.tasks.drain"), in the caller's transaction: a rollback takes the message back.

    A broker outside of the ledger is told after the commit, and whatever it answers fails nobody's work. Raises ImportError
    or LookupError when no such task exists.
    """
    module, _, name = task.rpartition(".")
    entry = getattr(import_module(module), name, None)
    if not isinstance(entry, Task):
        raise LookupError(f"{task} is no task: mark the function with queue.task.")
    arguments = () if argument is None else (argument,)
    key = key_of(entry.queue)
    if is_in_ledger():
        send(task, *arguments, key=key, timeout=entry.timeout)
    else:
        transaction.on_commit(lambda: offer(task, *arguments, key=key, timeout=entry.timeout))


def is_in_ledger() -> bool:
    """Whether messages are rows of the ledger's database, which commit with it and can be looked at."""
    return "orm" in settings.Q_CLUSTER


def send(task: str, *arguments: int, key: str, timeout: int) -> None:
    async_task(task, *arguments, cluster=key, broker=broker_of(key), timeout=timeout)


@cache
def broker_of(key: str) -> Any:
    """django-q2's side of a queue, kept by the process: it may hold connections. Raises what making it raises."""
    return import_string(settings.Q_CLUSTER.get("broker_class", ORM))(list_key=key)


_left_alone_until = 0.0  # of the monotonic clock


def offer(task: str, *arguments: int, key: str, timeout: int = limits.TASK_TIMEOUT) -> bool:
    """Give a message to a broker outside of the ledger; False where it does not take it, and then the sweep rings again."""
    global _left_alone_until
    try:
        if time.monotonic() < _left_alone_until:
            raise ConnectionError("the broker did not answer a moment ago")
        send(task, *arguments, key=key, timeout=timeout)
    except Exception as error:  # noqa: BLE001 - what was committed stays right without its message
        log.warning("message not sent, the sweep rings again", task=task, arguments=arguments, error=str(error))
        if time.monotonic() >= _left_alone_until:
            _left_alone_until = time.monotonic() + LEFT_ALONE
        return False
    return True


def key_of(queue: str) -> str:
    """The name that django-q2 knows the queue by: control is the default cluster, and in small installations all."""
    return queue if queue == WORK and not settings.ONE_CLUSTER else str(settings.Q_CLUSTER["name"])


def all_keys() -> list[str]:
    """Of the queues that have to be served, each by a cluster: the one, or both."""
    return list(dict.fromkeys(map(key_of, (CONTROL, WORK))))


@receiver(post_execute)
def message_is_gone(**_: Any) -> None:
    """Called in a cluster's monitor, after each acknowledgement."""
    heartbeats.acknowledged()


def keep_schedule() -> None:
    """Make the one row that django-q2's scheduler reads what `SCHEDULE` says, whoever edited, deleted or copied it."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('schedule of the tick'))")
        if not is_scheduled():
            rows_of_the_tick().delete()
            Schedule.objects.create(**SCHEDULE)
            log.info("schedule of the tick written")


def is_scheduled() -> bool:
    """Whether the one row of the tick is there as it should be, and soon due."""
    ours = rows_of_the_tick()
    soon = ours.filter(next_run__lt=Now() + 2 * TICK_EVERY)
    return ours.count() == 1 and list(soon.values(*SCHEDULE)) == [SCHEDULE]


def rows_of_the_tick() -> QuerySet[Schedule]:
    found: QuerySet[Schedule] = Schedule.objects.filter(Q(name=SCHEDULE["name"]) | Q(func=TICK))
    return found


def write_schedule(app_config: AppConfig, **_: Any) -> None:
    """`post_migrate` receiver."""
    if app_config.label == "base":
        keep_schedule()


def foreign_schedules() -> list[str]:
    """Functions that somebody else put on django-q2's schedule. They are not ours to remove."""
    return list(Schedule.objects.exclude(func=TICK).order_by("pk").values_list("func", flat=True))


def forget_failures() -> None:
    """Remove what django-q2 keeps of tasks that failed long ago; it never does so itself."""
    Failure.objects.filter(stopped__lt=Now() - FAILURES_KEPT).delete()


def is_waiting(key: str, *, since: datetime, longer_than: timedelta) -> bool:
    """Whether a message has waited so long: visible and taken by nobody, or taken since then and not acknowledged.

    A message taken before `since` belonged to an earlier cluster. `lock` is the time from which a message may be taken,
    by the clock of the host that wrote it: a taken one is locked for QUEUE_RETRY seconds.
    """
    retry = timedelta(seconds=limits.QUEUE_RETRY)
    untouched = Q(lock__lt=Now() - longer_than)
    unacknowledged = Q(lock__gt=Greatest(Now(), since + retry), lock__lt=Now() + retry - longer_than)
    waiting: bool = OrmQ.objects.filter(untouched | unacknowledged, key=key).exists()
    return waiting


def oldest(key: str) -> datetime | None:
    """Since when the message has waited that may be taken the longest, and that nobody took."""
    found: datetime | None = OrmQ.objects.filter(key=key, lock__lt=Now()).aggregate(at=Min("lock"))["at"]
    return found


def release(key: str, *, since: datetime) -> int:
    """Let the messages be taken again that a cluster took since then and will never acknowledge."""
    taken = OrmQ.objects.filter(key=key, lock__gt=Greatest(Now(), since + timedelta(seconds=limits.QUEUE_RETRY)))
    released: int = taken.update(lock=Now())
    return released
