"""Receivers in a thread of the test's process, whose answers the test decides."""

import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64  # more than any of the workers' threads that connect at once

    with Server(("127.0.0.1", 0), Handler) as server:
        inbox.url = f"http://127.0.0.1:{server.server_port}/hook"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield inbox
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Wire:
    """A server that does with each connection what the test says; `heads` are the requests as bytes, as they came."""

    port: int
    opened: int = 0
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def url(self, scheme: str = "http", host: str = "127.0.0.1") -> str:
        return f"{scheme}://{host}:{self.port}/hook"

    def take(self, connection: socket.socket) -> None:
        """Read one request."""
        got = b""
        while b"\r\n\r\n" not in got:
            piece = connection.recv(65_536)
            if not piece:
                raise ConnectionError("no request")
            got += piece
        head, _, body = got.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        while len(body) < int(length[1] if length else 0):
            body += connection.recv(65_536)
        self.heads.append(head)
        self.bodies.append(body)


Behaviour = Callable[[Wire, socket.socket, int], None]


@contextmanager
def wire(behave: Behaviour, tls: ssl.SSLContext | None = None) -> Iterator[Wire]:
    """`behave` gets the server, a connection (encrypted with `tls`) and its number, from 1; it is closed afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        made, threads, sockets = Wire(listening.getsockname()[1]), list[Thread](), list[socket.socket]()

        def serve(raw: socket.socket, number: int) -> None:
            with suppress(OSError):
                if tls is None:
                    behave(made, raw, number)
                else:
                    with tls.wrap_socket(raw, server_side=True) as connection:
                        sockets.append(connection)
                        behave(made, connection, number)
            raw.close()

        def accept() -> None:
            while True:
                try:
                    raw, _ = listening.accept()
                except OSError:
                    return
                made.opened += 1
                sockets.append(raw)
                threads.append(Thread(target=serve, args=(raw, made.opened)))
                threads[-1].start()

        accepting = Thread(target=accept)
        accepting.start()
        try:
            yield made
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for each in sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def says(*parts: bytes, drip: float = 0, for_ever: bytes = b"") -> Behaviour:
    """Take a request and write the parts, a byte each `drip` seconds from the second part on; then `for_ever`, if any."""

    def behave(server: Wire, connection: socket.socket, number: int) -> None:
        server.take(connection)
        connection.sendall(parts[0])
        for byte in b"".join(parts[1:]):
            time.sleep(drip)  # what is being tested, not what the test waits for
            connection.sendall(bytes([byte]))
        while for_ever:
            connection.sendall(for_ever)

    return behave
