"""Threads that send. Each takes the next event of the endpoint that has the fewest on their way, so that one which is slow,
or swallows what it gets, holds up nobody else.
"""

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Condition, Thread
from typing import Final

from webhooks import sender
from webhooks.claiming import Claimed, threads_of_one
from webhooks.sender import Answer

LINGER: Final = 0.02  # seconds from the first answer to the record, which takes along what else has come by then

Finished = tuple[Claimed, Answer]


class Senders:
    """`load` counts, by endpoint, what was added and not yet handed back by `finished`; `answered`: whose was handed back."""

    def __init__(self, threads: int) -> None:
        self.load = Counter[int]()
        self.answered = set[int]()
        self._through = sender.session(threads)
        self._change = Condition()
        self._waiting = dict[int, deque[Claimed]]()
        self._on_their_way = Counter[int]()
        self._done = SimpleQueue[Finished | BaseException]()
        self._closing = False
        self._threads = [Thread(target=self._work, name=f"webhook-{number}", daemon=True) for number in range(threads)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def add(self, claims: Iterable[Claimed]) -> None:
        with self._change:
            for claimed in claims:
                self._waiting.setdefault(claimed.endpoint_id, deque()).append(claimed)
                self.load[claimed.endpoint_id] += 1
                self._change.notify()

    def finished(self) -> list[Finished]:
        """Wait for an answer; returns it with all that has come and, if that is little, with what comes within LINGER.

        Raises what a thread died of.
        """
        found = [self._done.get(), *self._come()]
        until = time.monotonic() + LINGER
        while len(found) < min(len(self._threads), self.load.total()):
            try:
                found.append(self._done.get(timeout=max(0.0, until - time.monotonic())))
            except Empty:
                break
        finished = list[Finished]()
        for each in found:
            if isinstance(each, BaseException):
                raise each
            finished.append(each)
        self.load -= Counter(claimed.endpoint_id for claimed, _ in finished)
        self.answered |= {claimed.endpoint_id for claimed, _ in finished}
        return finished

    def _come(self) -> Iterator[Finished | BaseException]:
        while not self._done.empty():
            yield self._done.get()

    def close(self) -> None:
        """What has not begun is not begun, and its lease expires; what is on its way is waited for."""
        with self._change:
            self._closing = True
            self._change.notify_all()
        for thread in self._threads:
            if thread.ident is not None:  # begun
                thread.join()
        self._through.close()

    def _work(self) -> None:
        try:
            self._send_all()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for answers
            self._done.put(error)

    def _send_all(self) -> None:
        while (claimed := self._take()) is not None:
            timestamp = int(claimed.clock + time.monotonic())
            self._done.put((claimed, sender.send(self._through, claimed.sending, claimed.keys, timestamp)))
            with self._change:
                self._on_their_way[claimed.endpoint_id] -= 1
                if self._waiting:  # because its endpoint had its share, or has now a larger one
                    self._change.notify()

    def _take(self) -> Claimed | None:
        with self._change:
            while not self._closing:
                mine = self._next_endpoint()
                if mine is not None:
                    line = self._waiting[mine]
                    claimed = line.popleft()
                    if not line:
                        del self._waiting[mine]
                    self._on_their_way[mine] += 1
                    return claimed
                self._change.wait()
            return None

    def _next_endpoint(self) -> int | None:
        busy = max(1, len(self._waiting.keys() | set(+self._on_their_way)))
        most = threads_of_one(len(self._threads), busy)
        ready = [each for each in self._waiting if self._on_their_way[each] < most]
        return min(ready, key=self._on_their_way.__getitem__, default=None)


@contextmanager
def senders(threads: int) -> Iterator[Senders]:
    made = Senders(threads)
    try:
        made.start()
        yield made
    finally:
        made.close()
