"""HTTP connections of urllib3 that keep an outer deadline.

A timeout limits one operation of a socket: a server that drips its answer can hold a call for ever. Here every connect,
write and read is given the smaller of that timeout and the time left, in the calling thread. So a call ends at its
deadline, its socket is closed, nothing is sent later, and no thread stays behind.
"""

import http.client
import io
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar, cast

_PIECE = 16 * 1024  # one TLS record: a socket timeout covers a single record, so bigger writes could outlive it


@dataclass(slots=True)
class Call:
    """One call under way. `deadline` is a time.monotonic(); `sent`: a byte was handed to the socket."""

    deadline: float
    sent: bool = False

    @property
    def expired(self) -> bool:
        return time.monotonic() >= self.deadline

    def cap(self, timeout: float | None) -> float:
        """The smaller of `timeout` and the seconds left. Raises `TimeoutError` when none are left."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline of the call has passed")
        return left if timeout is None else min(timeout, left)

    def took(self, count: int) -> None:
        """So many bytes of the answer were read. A kind of call that limits them raises here."""


AnyCall = TypeVar("AnyCall", bound=Call)
_current: ContextVar[Call] = ContextVar("bounded_call")


def current() -> Call:
    """The call of this thread and block. Raises `LookupError` outside of one."""
    return _current.get()


@contextmanager
def under(call: AnyCall) -> Iterator[AnyCall]:
    """Hold the connections used in this thread and block to the deadline of `call`."""
    token = _current.set(call)
    try:
        yield call
    finally:
        _current.reset(token)


class _Reader(io.RawIOBase):
    def __init__(self, sock: socket.socket, call: Call) -> None:
        self._sock, self._call, self._idle = sock, call, sock.gettimeout()
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._call.cap(self._idle))
        count = self._raw.readinto(buffer)
        self._call.took(count or 0)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _ReadSide:
    """The only part of a socket that http.client.HTTPResponse uses."""

    def __init__(self, sock: socket.socket, call: Call) -> None:
        self._sock, self._call = sock, call

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock, self._call))


class Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(cast(socket.socket, _ReadSide(sock, current())), *args, **kwargs)


class Bounded:
    """Mixin for connections of urllib3, which then work inside `under` alone. Bodies are bytes: nothing uploads files."""

    response_class = Response
    sock: Any
    timeout: Any

    def connect(self) -> None:
        self.timeout = current().cap(self.timeout)
        super().connect()  # type: ignore[misc]

    def send(self, data: bytes) -> None:
        call = current()
        if self.sock is None:
            self.connect()
        for start in range(0, len(data), _PIECE):
            self.sock.settimeout(call.cap(self.timeout))
            call.sent = True
            super().send(data[start : start + _PIECE])  # type: ignore[misc]
