"""A receiver on loopback that answers 204 after a while, in a process of its own; what is posted to /silent gets no answer.

`python -m cleanup_project.operations.bench.answering SECONDS` prints its address and runs until it is ended.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ANSWER: Final = b"HTTP/1.1 204 No Content\r\n\r\n"
LENGTH: Final = b"content-length:"


class Answering(asyncio.Protocol):
    """One connection, with one request at a time on it, and no more of HTTP than that takes."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.come = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.come += data
        head, blank_line, body = self.come.partition(b"\r\n\r\n")
        if not blank_line or len(body) < length(head):
            return
        self.come = b""
        if not head.startswith(b"POST /silent"):
            asyncio.get_running_loop().call_later(self.seconds, self.transport.write, ANSWER)


def length(head: bytes) -> int:
    return next(int(line[len(LENGTH) :]) for line in head.lower().split(b"\r\n") if line.startswith(LENGTH))


async def serve(seconds: float) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Answering(seconds), "127.0.0.1", 0, backlog=512)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


@contextmanager
def answering(seconds: float) -> Iterator[str]:
    """Run one; yields its address."""
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
        [sys.executable, "-m", __name__, str(seconds)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[3],
        text=True,
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        if not address:
            raise RuntimeError("The receiver did not start; its messages are above.")
        yield address
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
