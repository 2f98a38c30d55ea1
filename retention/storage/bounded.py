"""HTTP connections that keep an outer deadline.

botocore's `read_timeout` limits one socket read: a server that drips its answer can hold a call for ever. Here every
connect, write and read is given the smaller of that timeout and the time left, in the calling thread. So a call ends at
its deadline, its socket is closed, nothing is sent later, and no thread stays behind.
"""

import http.client
import io
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

from botocore.awsrequest import AWSHTTPConnection, AWSHTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

_PIECE = 16 * 1024  # one TLS record: a socket timeout covers a single record, so bigger writes could outlive it


@dataclass(slots=True)
class Call:
    """One API call under way. `deadline` is a time.monotonic(); `sent`: a byte was handed to the socket."""

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


_current: ContextVar[Call] = ContextVar("storage_call")


@contextmanager
def deadline(at: float) -> Iterator[Call]:
    """Hold the connections used in this thread and block to the deadline `at` (time.monotonic())."""
    call = Call(at)
    token = _current.set(call)
    try:
        yield call
    finally:
        _current.reset(token)


def keep_deadlines(client: Any) -> None:
    """Make `client` use the connections below, which work inside `deadline` alone.

    botocore has no public place for a connection class. The dictionary is shared by its pool and proxy managers, so
    that TLS and proxy settings stay as botocore made them; were it renamed, this raises before the client is used.
    """
    client._endpoint.http_session._pool_classes_by_scheme.update(http=_Pool, https=_TLSPool)


class _Reader(io.RawIOBase):
    def __init__(self, sock: socket.socket, call: Call) -> None:
        self._sock, self._call, self._idle = sock, call, sock.gettimeout()
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._call.cap(self._idle))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _ReadSide:
    """The only part of a socket that http.client.HTTPResponse uses."""

    def __init__(self, sock: socket.socket, call: Call) -> None:
        self._sock, self._call = sock, call

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._sock, self._call))


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(cast(socket.socket, _ReadSide(sock, _current.get())), *args, **kwargs)


class _Bounded:
    """Mixin for botocore's connections. Bodies are bytes: nothing here uploads files."""

    response_class = _Response
    sock: Any
    timeout: Any

    def connect(self) -> None:
        self.timeout = _current.get().cap(self.timeout)
        super().connect()  # type: ignore[misc]

    def send(self, data: bytes) -> None:
        call = _current.get()
        if self.sock is None:
            self.connect()
        for start in range(0, len(data), _PIECE):
            self.sock.settimeout(call.cap(self.timeout))
            call.sent = True
            super().send(data[start : start + _PIECE])  # type: ignore[misc]


class _Connection(_Bounded, AWSHTTPConnection):  # type: ignore[misc]
    pass


class _TLSConnection(_Bounded, AWSHTTPSConnection):  # type: ignore[misc]
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection  # type: ignore[assignment]


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _TLSConnection  # type: ignore[assignment]
