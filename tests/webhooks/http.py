"""Receivers in a thread of the test's process, whose answers the test decides."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

from webhooks.receiver import verify


@dataclass(frozen=True)
class Request:
    """One request as it came; `path` includes the query."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def is_signed_by(self, *secrets: str) -> bool:
        return verify(secrets, self.headers, self.body, now=time.time()).id == self.id


Answer = Callable[[Request], bytes | int]


@dataclass
class Inbox:
    """What was received, in the order of arrival, and where."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)


@contextmanager
def receiver(answer: Answer = lambda request: 204) -> Iterator[Inbox]:
    """A server on loopback. The answer is a status, or the raw bytes to write before the connection is closed."""
    inbox, lock = Inbox(), Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            request = Request(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            with lock:
                inbox.requests.append(request)
            said = answer(request)
            if isinstance(said, bytes):
                self.wfile.write(said)
                self.close_connection = True
                return
            self.send_response(said)
            self.send_header("content-length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        inbox.url = f"http://127.0.0.1:{server.server_port}/hook"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield inbox
        finally:
            server.shutdown()
            thread.join()
