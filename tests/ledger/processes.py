"""Workers as real processes, forks of the test's own: quick to start, and killed, stopped and continued as any other.

The parent's connection to the database is closed before the fork, and each side opens its own. A child never returns into
pytest: it ends by `os._exit`, or by a signal.
"""

import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections

from retention.storage import BucketRef, ObjectStore, VersionRef

WAIT = 120.0
Say = Callable[[str], None]


class Child:
    """One worker; `heard` reads what it says, line by line."""

    def __init__(self, pid: int, ear: int) -> None:
        self.pid, self._ear, self._said = pid, ear, b""
        self.status: int | None = None

    def heard(self) -> str:
        until = time.monotonic() + WAIT
        while b"\n" not in self._said:
            ready, _, _ = select.select([self._ear], [], [], max(0.0, until - time.monotonic()))
            piece = os.read(self._ear, 4096) if ready else b""
            assert piece, "the worker ended, or said nothing in time"
            self._said += piece
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)
        if number == signal.SIGSTOP:
            self.stopped()  # and not only been told to

    def stopped(self) -> None:
        """Wait until it has stopped, by its own doing or ours."""
        assert os.WIFSTOPPED(self._awaited(os.WUNTRACED)), "the worker ended, and did not stop"

    def ended(self) -> int:
        """Its exit status; of one that a signal ended, the negative number of the signal."""
        if self.status is None:
            self._awaited(0)
        assert self.status is not None
        return self.status

    def _awaited(self, options: int) -> int:
        until = time.monotonic() + WAIT
        while True:
            pid, status = os.waitpid(self.pid, options | os.WNOHANG)
            if pid:
                self.status = None if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
                return status
            assert time.monotonic() < until, "the worker does not come to it"
            time.sleep(0.01)


@contextmanager
def worker(work: Callable[[Say], Any]) -> Iterator[Child]:
    """A process that does `work` and ends with 0, or with 1 after an exception; killed when the test leaves it behind."""
    connections.close_all()
    ear, mouth = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ear)
        _child(work, mouth)
    os.close(mouth)
    child = Child(pid, ear)
    try:
        yield child
    finally:
        if child.status is None:
            os.kill(pid, signal.SIGKILL)
            child.ended()
        os.close(ear)


def _child(work: Callable[[Say], Any], mouth: int) -> None:
    status = 1
    try:
        work(lambda line: os.write(mouth, line.encode() + b"\n"))
        status = 0
    except BaseException:  # noqa: BLE001 - nothing of the child may run on inside pytest
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


class Hooked:
    """An object store that lets a test act around each call, as `before(operation, refs)` and `after(operation, refs)`."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        before: Callable[[str, Collection[VersionRef]], object] = lambda operation, refs: None,
        after: Callable[[str, Collection[VersionRef]], object] = lambda operation, refs: None,
    ) -> None:
        self.store, self.before, self.after = store, before, after

    def __getattr__(self, operation: str) -> Any:
        call = getattr(self.store, operation)

        def around(bucket: BucketRef, refs: Collection[VersionRef], **options: Any) -> Any:
            self.before(operation, refs)
            answer = call(bucket, refs, **options)
            self.after(operation, refs)
            return answer

        return around

    def __call__(self, bucket: BucketRef) -> "Hooked":
        """As `drain` takes it."""
        return self


def die_at(wanted: str, nth: int = 1, number: int = signal.SIGKILL) -> Callable[[str, Collection[VersionRef]], None]:
    """A hook that sends this process a signal at the nth call of an operation."""
    calls = 0

    def hook(operation: str, refs: Collection[VersionRef]) -> None:
        nonlocal calls
        calls += operation == wanted
        if operation == wanted and calls == nth:
            os.kill(os.getpid(), number)

    return hook


def stop_at(nth: int) -> Callable[..., None]:
    """A hook that stops this process when it is called for the nth time."""
    calls = 0

    def hook(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == nth:
            os.kill(os.getpid(), signal.SIGSTOP)

    return hook


def stop_before(module: Any, step: str, nth: int = 1) -> None:
    """From now on, this process stops before it does a step of a module for the nth time."""
    done, hook = getattr(module, step), stop_at(nth)

    def stopping(*arguments: Any, **options: Any) -> Any:
        hook()
        return done(*arguments, **options)

    setattr(module, step, stopping)
