"""A real receiver of webhooks on loopback, in a process of its own, as another system would run one.

`python -m cleanup_project.operations.demo.receiver LOG` takes the secret from WEBHOOK_SECRET and prints its URL. Each request
becomes one JSON line in LOG: id, type, subject, sequence, verified, duplicate, acknowledged. A ping is answered, and is none.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any, Final

from webhooks.receiver import Refused, Seen, verify

LARGEST_BODY: Final = 128 * 1024
STOP_SECONDS: Final = 10


class Receiver(ThreadingHTTPServer):
    """Verifies, suppresses duplicates, logs; with `drop_first` it handles its first event and closes without a word."""

    daemon_threads = True
    request_queue_size = 128  # a dispatch comes with 32 connections at once; beyond the usual 5, some are turned away

    def __init__(self, secret: str, log: Path, *, drop_first: bool, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.secret = secret
        self.log = log
        self.seen = Seen(log.with_suffix(".seen"))
        self.drop = drop_first
        self.lock = Lock()

    def write(self, line: dict[str, Any]) -> None:
        with self.lock, self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def drops_this(self) -> bool:
        with self.lock:
            drop, self.drop = self.drop, False
            return drop


class Handler(BaseHTTPRequestHandler):
    server: Receiver
    protocol_version = "HTTP/1.1"
    timeout = 30

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        if length > LARGEST_BODY:
            self.answer(413)
            return
        body = self.rfile.read(length)
        try:
            verified = verify([self.server.secret], self.headers, body, now=time.time())
        except Refused:
            self.server.write({"id": self.headers.get("webhook-id"), "verified": False})
            self.answer(401)
            return
        event = json.loads(body)
        if event["type"] == "endpoint.ping":
            self.answer(204)
            return
        drop = self.server.drops_this()
        with self.server.seen.first_time("demo", verified.id) as first:
            told = {name: event[name] for name in ("id", "type", "subject", "sequence")}
            self.server.write(told | {"verified": True, "duplicate": not first, "acknowledged": not drop})
        if drop:
            self.close_connection = True
        else:
            self.answer(204)

    def answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def receiver(secret: str, log_path: Path, drop_first: bool = True, port: int = 0) -> Iterator[str]:
    """Run the receiver in a process of its own; yields its URL and ends it afterwards."""
    command = [
        sys.executable,
        "-m",
        __name__,
        str(log_path),
        f"--port={port}",
        *(["--drop-first"] if drop_first else []),
    ]
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
        command,
        stdout=subprocess.PIPE,
        env=os.environ | {"WEBHOOK_SECRET": secret},
        cwd=Path(__file__).resolve().parents[3],
        text=True,
        start_new_session=True,  # Ctrl-C reaches the demo alone, which then ends this process in order
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError("The receiver of the demo did not start; its messages are above.")
        yield url
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def read_log(log_path: Path) -> list[dict[str, Any]]:
    """What the receiver got, in order."""
    if not log_path.exists():
        return []
    return [json.loads(line) for line in log_path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description="Receive webhooks on loopback.")
    parser.add_argument("log", type=Path)
    parser.add_argument("--drop-first", action="store_true", help="Handle the first event, and do not say so.")
    parser.add_argument("--port", type=int, default=0, help="Default: any free one.")
    arguments = parser.parse_args()
    with Receiver(
        os.environ["WEBHOOK_SECRET"], arguments.log, drop_first=arguments.drop_first, port=arguments.port
    ) as server:
        sys.stdout.write(f"http://127.0.0.1:{server.server_port}/webhooks\n")
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            server.serve_forever()


if __name__ == "__main__":
    main()
