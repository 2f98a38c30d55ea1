"""Work beside the test's own, in a thread with a connection of its own; what it raises is raised where it is awaited."""

import threading
import time
from collections.abc import Callable
from typing import Any

from django.db import connection, connections

WAIT = 60.0


class Beside:
    def __init__(self, work: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        self._answer: Any = None
        self._error: BaseException | None = None

        def run() -> None:
            try:
                self._answer = work(*arguments, **options)
            except BaseException as error:  # noqa: BLE001 - raised again in the test
                self._error = error
            finally:
                connections.close_all()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    @property
    def goes_on(self) -> bool:
        return self._thread.is_alive()

    def answer(self) -> Any:
        """What the work returned; raises what it raised."""
        self._thread.join(WAIT)
        assert not self._thread.is_alive(), "the work beside the test does not end"
        if self._error is not None:
            raise self._error
        return self._answer


class Gate:
    """A point in somebody else's work: `reached` waits until it is there, `open` lets it go on."""

    def __init__(self) -> None:
        self._there, self._go = threading.Event(), threading.Event()

    def __call__(self, *_: Any, **__: Any) -> None:
        self._there.set()
        assert self._go.wait(WAIT), "nobody opened the gate"

    def reached(self) -> None:
        assert self._there.wait(WAIT), "nobody came to the gate"

    @property
    def is_open(self) -> bool:
        return self._go.is_set()

    def open(self) -> None:
        self._go.set()


def somebody_waits() -> bool:
    """Whether some session of this database waits for a lock of another one."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_stat_clear_snapshot()"
        )  # within a transaction, what was seen first would be seen for ever
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')"
        )
        return bool(cursor.fetchone()[0])


def until(condition: Callable[[], bool]) -> None:
    """Wait until something of another session's is so."""
    ends = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < ends, "it does not come about"
        time.sleep(0.01)
