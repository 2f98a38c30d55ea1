"""A mail server in a thread of the test's process: it keeps what it accepts, and refuses what the test says."""

import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from threading import Thread
from typing import Any


@dataclass
class Postbox:
    """What was accepted, in order. `refusing`: every message is answered with 451, a failure that passes."""

    port: int = 0
    messages: list[EmailMessage] = field(default_factory=list)
    refusing: bool = False


@contextmanager
def mail_server() -> Iterator[Postbox]:
    """SMTP on loopback, as much of RFC 5321 as a client needs that sends in the clear."""
    postbox = Postbox()

    class Handler(socketserver.StreamRequestHandler):
        def say(self, line: str) -> None:
            self.wfile.write(line.encode() + b"\r\n")

        def handle(self) -> None:
            self.say("220 test")
            while line := self.rfile.readline():
                verb = line.split()[0].upper()
                if verb == b"DATA":
                    self.say("354 go on")
                    self.keep()
                    continue
                self.say("221 bye" if verb == b"QUIT" else "250 ok")

        def keep(self) -> None:
            body = b"".join(iter(self.rfile.readline, b".\r\n"))
            if not postbox.refusing:
                message: Any = message_from_bytes(body.replace(b"\r\n", b"\n"), policy=policy.default)
                postbox.messages.append(message)
            self.say("451 try later" if postbox.refusing else "250 kept")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        postbox.port = server.server_address[1]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield postbox
        finally:
            server.shutdown()
            thread.join()
