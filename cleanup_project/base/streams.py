"""Answers that are sent while they are made, and what one may take of a web process: a place, and time.

Whoever reads slowly holds a thread, and for receipts a snapshot of the database. A piece that nobody takes ends with the
socket's own limit, since what waits in a send looks at no clock; one that is taken drop by drop ends at the whole one's.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

from django.http import HttpResponse

AT_ONCE: Final = 4  # in one process; cleanup_project.gunicorn gives it twice as many threads
LONGEST: Final = 15 * 60.0  # seconds for the whole
LONGEST_PIECE: Final = 60.0  # for one write to the receiver, or to the proxy before it
RETRY_SECONDS: Final = 30

places = threading.BoundedSemaphore(AT_ONCE)


class Busy(Exception):
    """Every place of this process is taken; nothing was begun."""


class TooSlow(Exception):
    """The receiver has not taken the whole in time."""


@contextmanager
def place() -> Iterator[None]:
    """Room for one answer. Raises Busy."""
    if not places.acquire(blocking=False):
        raise Busy(f"{AT_ONCE} downloads are being sent already: try again in half a minute.")
    try:
        yield
    finally:
        places.release()


def timely(content: Generator[bytes]) -> Generator[bytes]:
    """The content, taken within `LONGEST` from now. Raises TooSlow: looked at whenever the receiver has taken a piece."""
    until = time.monotonic() + LONGEST
    with closing(content):
        for piece in content:
            if time.monotonic() >= until:
                raise TooSlow(f"The receiver had not taken everything within {LONGEST / 60:.0f} minutes.")
            yield piece


def send(begin: Callable[[], Generator[bytes]]) -> Generator[bytes]:
    """What `begin` returns, timely and in a place of its own. Raises Busy before it is called, and what it raises."""
    content = placed(begin)
    next(content)  # from here on, closing it gives the place back
    return content


def placed(begin: Callable[[], Generator[bytes]]) -> Generator[bytes]:
    with place(), closing(begin()) as content:
        first = next(content, b"")  # what is begun closes what it has open when it is closed
        yield b""
        yield first
        yield from timely(content)


def refused(busy: Busy) -> HttpResponse:
    """For people, who see it in place of the file."""
    return HttpResponse(str(busy), status=429, content_type="text/plain; charset=utf-8", headers=retry_after())


def retry_after() -> dict[str, str]:
    return {"Retry-After": str(RETRY_SECONDS)}


def bounded(application: Callable[..., Any]) -> Callable[..., Any]:
    """A WSGI application of which no write waits longer than `LONGEST_PIECE`, under gunicorn, which sets no limit itself."""

    def limited(environ: dict[str, Any], start_response: Any) -> Any:
        if (socket := environ.get("gunicorn.socket")) is not None:
            socket.settimeout(LONGEST_PIECE)
        return application(environ, start_response)

    return limited
