"""What an answer that is sent while it is made may take of a web process."""

import socket
from collections.abc import Generator
from contextlib import closing

import pytest

from cleanup_project import gunicorn
from cleanup_project.base import streams
from tests.web import places_taken


def pieces() -> Generator[bytes]:
    yield b"one"
    yield b"two"


def test_half_of_the_threads_are_left_for_pages() -> None:
    assert gunicorn.threads == 2 * streams.AT_ONCE


def test_nothing_is_begun_while_every_place_is_taken() -> None:
    begun = list[str]()

    def begin() -> Generator[bytes]:
        begun.append("begun")
        return pieces()

    with places_taken(), pytest.raises(streams.Busy, match="4 downloads are being sent already"):
        streams.send(begin)
    assert begun == []
    assert b"".join(streams.send(begin)) == b"onetwo"


def test_a_place_is_given_back_however_it_ends() -> None:
    def breaks() -> Generator[bytes]:
        raise ValueError("broken")

    for _ in range(streams.AT_ONCE + 1):
        assert b"".join(streams.send(pieces)) == b"onetwo"
        with closing(streams.send(pieces)) as content:
            next(content)
        streams.send(pieces)  # by a middleware that answers something else
        with pytest.raises(ValueError, match="broken"):
            streams.send(breaks)
    with places_taken():
        pass


def test_what_nobody_asks_a_piece_of_closes_what_it_has_open() -> None:
    closed = list[str]()

    def opened() -> Generator[bytes]:
        try:
            yield b"one"
        finally:
            closed.append("closed")

    streams.send(opened).close()
    assert closed == ["closed"]


def test_what_is_not_taken_in_time_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    content = streams.send(pieces)
    assert next(content) == b"one"
    monkeypatch.setattr(streams.time, "monotonic", lambda: float("inf"))
    with pytest.raises(streams.TooSlow, match="had not taken everything within 15 minutes"):
        next(content)


def test_a_write_that_nobody_takes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LONGEST_PIECE", 0.01)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert streams.bounded(lambda environ, _start: [b"answer"])({"gunicorn.socket": ours}, None) == [b"answer"]
        with pytest.raises(TimeoutError):
            ours.sendall(bytes(1 << 24))
    assert streams.bounded(lambda environ, _start: [b"answer"])({}, None) == [b"answer"]
