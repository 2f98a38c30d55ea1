"""Workers that die or freeze at any point, and a store that tells what they did to it.

A point is every statement of SQL and each side of every call of the store. Nothing of it is known to the product.
"""

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction

from retention.storage import BucketRef, DeleteOutcome, Failure, FailureClass, Inspection, VersionRef
from retention.storage.memory import Fault, MemoryStore
from retention.storage.port import STOPPED_CODE
from tests.flushing import guards_lifted

HANDOVER_SECONDS = 60.0


class Died(BaseException):
    """The process of a worker has ended: nothing of ours runs after it."""


@dataclass
class Worker:
    """Runs one piece of work; dies at point `dies_at`, or stands still from point `stops_at` on until it is told to go on.

    `stops_at` may also name a point: "ask 1" is before the control read of a call's second request, "send 1" after it. A
    worker stands still only outside of transactions, where it may do so for ever; dying inside of one rolls it back.
    """

    work: Callable[[], object]
    dies_at: int | None = None
    stops_at: int | str | None = None
    points: int = 0
    frozen: bool = False
    watched: bool = False  # what runs now is the test's own
    dead: bool = False
    late: bool = False  # time has passed since it stopped
    trouble: BaseException | None = None
    _thread: threading.Thread | None = None
    _ours: threading.Event = field(default_factory=threading.Event)
    _theirs: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Run until the end, death, or standstill; a worker that may stand still has a thread and a connection of its own."""
        if self.stops_at is None:
            self._run()
        else:
            self._thread = threading.Thread(target=self._run_apart, daemon=True)
            self._thread.start()
            self._await()

    def go_on(self, *, die: bool = False) -> None:
        """Let a worker that stands still run to its end, or end where it stands."""
        self.frozen = False
        if die:
            self.dies_at = self.points
        self._theirs.set()
        self._await()

    def point(self, name: str = "", *, may_stop: bool = True) -> None:
        if self.dead or self.watched or _current.worker is not self:
            return
        self.points += 1
        if self.dies_at is not None and self.points >= self.dies_at:
            self._die()
        here = self.points >= self.stops_at if isinstance(self.stops_at, int) else name == self.stops_at
        if self.stops_at is not None and here and may_stop:
            self.stops_at = None
            self.frozen = True
            self._ours.set()
            self._theirs.wait()
            if self.dies_at is not None:
                self._die()

    def _die(self) -> None:
        self.dead = True
        raise Died

    def _await(self) -> None:
        assert self._ours.wait(HANDOVER_SECONDS), "a worker neither ended nor stopped"
        self._ours.clear()
        if not self.frozen and self._thread:
            self._thread.join()
        if self.trouble is not None:
            raise self.trouble

    def _run_apart(self) -> None:
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET synchronous_commit = off")
            self._run()
        except BaseException as error:  # noqa: BLE001 - told to the one who waits
            self.trouble = error
        finally:
            connection.close()
            self._ours.set()

    def _run(self) -> None:
        _current.worker = self
        try:
            with connection.execute_wrapper(self._statement):
                self.work()
        except Died:
            pass
        finally:
            _current.worker = None

    def _statement(self, execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        inside = context["connection"].in_atomic_block
        self.point(may_stop=not inside)
        return execute(sql, params, many, context)


class _Current(threading.local):
    worker: Worker | None = None


_current = _Current()


def current() -> Worker | None:
    """The worker on whose behalf this thread runs."""
    return _current.worker


@dataclass(frozen=True, slots=True)
class Plan:
    """What the next deletion meets. `executed`: at once, `later`, or not at all; `only`: the place of the one ref."""

    failure: Failure
    executed: str = "never"
    only: int | None = None


def ambiguous(kind: FailureClass) -> Failure:
    return Failure.of(kind, "Timeout", ambiguous=True)


@dataclass
class Watched:
    """An object store in front of a `MemoryStore`: asks `proceed` before each request, and keeps a journal of them.

    `split`: each version is a request of its own, as after throttling. `before_send` is called when the control read
    allowed a request; `removed` when a version went by our hand.
    """

    inner: MemoryStore
    before_send: Callable[[BucketRef, Collection[VersionRef]], None]
    removed: Callable[[BucketRef, VersionRef], None]
    split: bool = False
    plans: list[Plan] = field(default_factory=list)
    blind: list[Failure] = field(default_factory=list)
    in_flight: list[tuple[BucketRef, VersionRef]] = field(default_factory=list)

    def inspect(
        self, bucket: BucketRef, refs: Collection[VersionRef], *, deadline_seconds: float = 60.0
    ) -> dict[VersionRef, Inspection]:
        point()
        if self.blind:
            self.inner.inject(Fault("inspect", self.blind.pop()))
        seen = self.inner.inspect(bucket, refs)
        point()
        return seen

    def delete_versions(
        self,
        bucket: BucketRef,
        refs: Collection[VersionRef],
        *,
        deadline_seconds: float,
        proceed: Callable[[], bool] = lambda: True,
    ) -> dict[VersionRef, DeleteOutcome]:
        outcomes: dict[VersionRef, DeleteOutcome] = {}
        for number, group in enumerate([[ref] for ref in refs] if self.split else [list(refs)]):
            point(f"ask {number}")
            if not proceed():
                break
            with unpointed():
                self.before_send(bucket, group)
            point(f"send {number}")
            outcomes |= self.send(bucket, group)
            point()
        stopped = Failure.of(FailureClass.TRANSIENT, STOPPED_CODE, "not sent: no longer allowed")
        return {ref: DeleteOutcome.failed(stopped, sent=False) for ref in refs} | outcomes

    def send(self, bucket: BucketRef, refs: list[VersionRef]) -> dict[VersionRef, DeleteOutcome]:
        there = [ref for ref in refs if self.has(bucket, ref)]
        plan = self.plans.pop() if self.plans else None
        if plan is not None:
            hit = refs if plan.only is None else [refs[plan.only % len(refs)]]
            if plan.executed == "later":
                self.in_flight += [(bucket, ref) for ref in hit]
            self.inner.inject(Fault("delete_versions", plan.failure, frozenset(hit), executed=plan.executed == "now"))
        said = self.inner.delete_versions(bucket, refs, deadline_seconds=60.0)
        for ref in there:
            if not self.has(bucket, ref):
                with unpointed():
                    self.removed(bucket, ref)
        return said

    def arrive(self) -> None:
        """Requests that were long on their way reach the store, within the bucket's settle time."""
        while self.in_flight:
            bucket, ref = self.in_flight.pop()
            if self.has(bucket, ref):
                self.inner.delete_versions(bucket, [ref], deadline_seconds=60.0)
                self.removed(bucket, ref)

    def has(self, bucket: BucketRef, ref: VersionRef) -> bool:
        return self.inner._bucket(bucket).find(ref) is not None

    def current(self, bucket: BucketRef, key: str) -> VersionRef | None:
        kept = self.inner._bucket(bucket).keys.get(key)
        return VersionRef(key, kept[0].version_id) if kept else None

    def tamper(self, bucket: BucketRef, ref: VersionRef) -> None:
        """Somebody else removes a version."""
        self.inner._bucket(bucket).remove(ref)


@contextmanager
def unpointed() -> Iterator[None]:
    """What the test itself does on a worker's way has no points: it would tear apart what the product does in one go."""
    worker = current()
    if worker is not None:
        worker.watched = True
    yield
    if worker is not None:
        worker.watched = False


def point(name: str = "") -> None:
    worker = current()
    if worker is not None:
        worker.point(name)


class Clock:
    """What the workers' monotonic clock is ahead of the real one, in seconds."""

    ahead = 0.0


def empty() -> None:
    """Empty every table that an example writes, with the guards lifted: for a few rows, DELETE is faster than TRUNCATE."""
    kept = ("django_migrations", "django_content_type", "django_q_schedule", "auth_")
    tables = [table for table in connection.introspection.table_names() if not table.startswith(kept)]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
        with guards_lifted():
            cursor.execute("".join(f"DELETE FROM {table};" for table in tables))
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
