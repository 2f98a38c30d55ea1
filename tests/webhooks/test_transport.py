"""One POST that nothing can hang, trick or bloat, over real sockets."""

import errno
import gzip
import socket
import ssl
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.webhooks.certificates import Authority
from tests.webhooks.http import Behaviour, Wire, says, wire
from tests.webhooks.sending import post
from webhooks import sender
from webhooks.connections import Resolver
from webhooks.sender import Answer

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
TOTAL = 0.6
SLACK = 0.2


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.made(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """The authority that the sender trusts, and no other."""
    monkeypatch.setattr(sender, "AUTHORITIES", str(authority.path))
    return authority


def timed(url: str, *, total: float = TOTAL, **kwargs: Any) -> Answer:
    """A POST that has little time, and keeps it."""
    began = time.monotonic()
    answer = post(url, total=total, **kwargs)
    assert time.monotonic() - began <= total + SLACK
    return answer


@contextmanager
def little_memory() -> Iterator[None]:
    """What the block allocates at most, the test's server included, stays below 10 MiB."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        assert tracemalloc.get_traced_memory()[1] - before < 10 * 2**20
    finally:
        tracemalloc.stop()


# What comes of it where the answer drips: before a status line nobody knows, after it the status counts.
DRIPS: dict[str, tuple[Behaviour, int | None, str]] = {
    "body": (says(b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n", b"x" * 99, drip=0.05), 200, ""),
    "body of an error": (says(b"HTTP/1.1 503 No\r\n\r\n", b"x" * 99, drip=0.05), 503, "transient"),
    "header": (says(b"HTTP/1.1 200 OK\r\n", b"x-long: " + b"x" * 99, drip=0.05), 200, ""),
    "header of an error": (says(b"HTTP/1.1 404 No\r\n", b"x-long: " + b"x" * 99, drip=0.05), 404, "not_found"),
    "status line": (says(b"HTTP/1.1 ", b"200 " + b"O" * 99, drip=0.05), None, "timeout_ambiguous"),
    "interim answers": (says(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 9, drip=0.02), None, "timeout_ambiguous"),
    "chunk extension": (
        says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1;" + b"x" * 99, drip=0.05),
        200,
        "",
    ),
    "trailer": (
        says(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"x-t: " + b"x" * 99, drip=0.05),
        200,
        "",
    ),
    "silence": (says(b"", b"H", drip=TOTAL + SLACK), None, "timeout_ambiguous"),
}


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("kind", DRIPS)
def test_a_drip_ends_at_the_deadline(trusted: Authority, kind: str, secure: bool) -> None:
    behave, status, failure = DRIPS[kind]
    with wire(behave, trusted.context() if secure else None) as server:
        answer = timed(server.url("https" if secure else "http"))
    assert (answer.status, answer.failure_class) == (status, failure)
    assert answer.truncated == (status is not None)
    assert server.opened == 1


def test_a_tls_handshake_that_drips_ends_at_the_deadline(trusted: Authority) -> None:
    def behave(server: Wire, connection: socket.socket, number: int) -> None:
        connection.recv(65_536)
        for byte in b"\x16\x03\x03\x40\x00\x02" + b"x" * 99:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)

    with wire(behave) as server:
        assert timed(server.url("https")).failure_class == "tls"


def test_a_body_that_drips_is_left_after_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "BODY_TIMEOUT", 0.3)
    with wire(says(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 99, drip=0.05)) as server:
        began = time.monotonic()
        answer = post(server.url())
        assert time.monotonic() - began < 0.3 + SLACK
    assert (answer.status, answer.failure_class, answer.truncated) == (200, "", True)
    assert 0 < answer.bytes_read == len(answer.response) < 99


def test_silence_ends_after_the_time_between_two_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "READ_TIMEOUT", 0.3)
    with wire(says(b"", b"H", drip=TOTAL)) as server:
        began = time.monotonic()
        assert post(server.url()).failure_class == "timeout_ambiguous"
        assert time.monotonic() - began < 0.3 + SLACK


def test_a_look_up_that_hangs_ends_at_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(2) or [])
    answer = timed("http://slow.test/")
    assert (answer.failure_class, answer.peer) == ("dns_temp", "")


def test_look_ups_that_hang_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhooks.connections.LOOK_UPS", 1)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(1) or [])
    with sender.session(1) as through:
        assert "not found within" in post("http://slow.test/", through=through, total=0.1).error
        assert "look-ups of names are stuck" in post("http://other.test/", through=through, total=0.1).error


def test_a_look_up_gives_its_place_back() -> None:
    resolver = Resolver()
    for _ in range(40):
        assert resolver.addresses("127.0.0.1", 80, 3)[0][1][0] == "127.0.0.1"


def test_nobody_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhooks.connections.CONNECT_TIMEOUT", 0.3)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        place = full.getsockname()
        with socket.create_connection(place), socket.socket() as waiting:
            waiting.setblocking(False)
            waiting.connect_ex(place)
            answer = timed(f"http://127.0.0.1:{place[1]}/")
    assert (answer.failure_class, answer.status, answer.peer) == ("timeout_connect", None, "")


@pytest.mark.parametrize("pause", [0.02, TOTAL + SLACK], ids=["slowly", "not at all"])
def test_a_receiver_that_does_not_read_ends_at_the_deadline(pause: float) -> None:
    def behave(server: Wire, connection: socket.socket, number: int) -> None:
        time.sleep(pause)
        while connection.recv(65_536):
            time.sleep(pause)

    with wire(behave) as server:
        assert timed(server.url(), body=b"x" * 20_000_000).failure_class == "timeout_ambiguous"


BOMB = gzip.compress(bytes(200_000_000), 9)[:200_000]
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
FLOODS: dict[str, tuple[Behaviour, int | None, str]] = {
    "body": (says(b"HTTP/1.1 200 OK\r\n\r\n", for_ever=b"x" * 60_000), 200, ""),
    "bomb": (says(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + BOMB), 200, ""),
    "bomb of a redirect": (
        says(b"HTTP/1.1 302 Found\r\nlocation: /else\r\ncontent-encoding: gzip\r\n\r\n" + BOMB),
        302,
        "redirect",
    ),
    "endless redirect": (
        says(b"HTTP/1.1 302 Found\r\nlocation: /else\r\n\r\n", for_ever=b"x" * 60_000),
        302,
        "redirect",
    ),
    "1,000 headers": (says(b"HTTP/1.1 200 OK\r\n" + b"x-header: of some length\r\n" * 1000 + b"\r\n"), 200, ""),
    "headers of an error": (says(b"HTTP/1.1 500 No\r\n" + b"x-header: 1\r\n" * 1000 + b"\r\n"), 500, "transient"),
    "endless headers": (says(b"HTTP/1.1 200 OK\r\n", for_ever=b"x-h: " + b"x" * 60_000 + b"\r\n"), 200, ""),
    "endless header": (says(b"HTTP/1.1 200 OK\r\nx-h: ", for_ever=b"x" * 60_000), 200, ""),
    "endless status line": (says(b"HTTP/1.1 200 ", for_ever=b"x" * 60_000), None, "network"),
    "interim answers": (says(b"", for_ever=b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n" * 1000), None, "network"),
    "early hints": (says(b"", for_ever=b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000), None, "network"),
    "chunk extension": (says(CHUNKED + b"1;", for_ever=b"x" * 60_000), 200, ""),
    "tiny chunks": (says(CHUNKED, for_ever=(b"1;" + b"x" * 30_000 + b"\r\ny\r\n")), 200, ""),
    "trailers": (says(CHUNKED + b"0\r\n", for_ever=b"x-t: y\r\n" * 1000), 200, ""),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_costs_neither_memory_nor_time(kind: str) -> None:
    behave, status, failure = FLOODS[kind]
    with wire(behave) as server, little_memory():
        answer = timed(server.url(), total=5)  # what is counted ends it, and not the time
    assert (answer.status, answer.failure_class) == (status, failure)
    assert len(answer.response) <= 4096
    assert answer.bytes_read <= 65_536
    assert (server.opened, len(server.heads)) == (1, 1)


def test_what_is_kept_of_a_body_is_its_beginning() -> None:
    for size, truncated in ((0, False), (4096, False), (4097, True), (65_535, True), (100_000, True)):
        head = f"HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n".encode()
        with wire(says(head + b"abcdefgh" * (size // 8 + 1))) as server:
            answer = post(server.url())
        assert answer.response == (b"abcdefgh" * 512)[: min(size, 4096)]
        assert (answer.bytes_read, answer.truncated) == (min(size, 65_536), truncated)


def test_an_unpacked_body_is_not_unpacked() -> None:
    packed = gzip.compress(b"hello")
    with wire(says(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n" + packed)) as server:
        assert post(server.url()).response == packed


@pytest.mark.parametrize(
    "rest",
    [b"content-length: 100\r\n\r\nbroken", b"transfer-encoding: chunked\r\n\r\nzz\r\n", b"x-cut",
     b"transfer-encoding: chunked\r\n\r\n9", b"content-length: -1\r\n\r\n"],
)  # fmt: skip
def test_a_2xx_status_line_is_an_acknowledgement_whatever_follows(rest: bytes) -> None:
    with wire(says(b"HTTP/1.1 202 Accepted\r\n" + rest)) as server:
        answer = post(server.url())
    assert (answer.status, answer.failure_class, answer.error, server.opened) == (202, "", "", 1)


def test_interim_answers_are_passed_over() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n"
    with wire(says(interim + b"HTTP/1.1 204 No Content\r\n\r\n")) as server:
        assert (post(server.url()).status, server.opened) == (204, 1)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status: int) -> None:
    with wire(says(OK)) as other:
        location = f"HTTP/1.1 {status} Moved\r\nlocation: {other.url()}\r\ncontent-length: 0\r\n\r\n".encode()
        with wire(says(location)) as server:
            answer = post(server.url())
    assert (answer.status, answer.failure_class, other.opened, server.opened) == (status, "redirect", 0, 1)
    assert answer.error == (
        f"The endpoint answered {status}. Redirects are not followed: enter the URL that answers by itself."
    )


@pytest.mark.parametrize("garbage", [b"SSH-2.0-OpenSSH_9.2\r\n", b"\x00\x01\x02\xff\r\n", b"HTTP/1.1 abc\r\n\r\n", b""])
def test_what_is_no_http_is_no_answer(garbage: bytes) -> None:
    with wire(says(garbage)) as server:
        answer = post(server.url())
    assert (answer.status, answer.failure_class) == (None, "network")
    assert answer.error.isprintable()
    assert answer.error.isascii()


# TLS


def certificate_of_another(authority: Authority, folder: Path) -> ssl.SSLContext:
    return Authority.made(folder, "another").context()


@pytest.mark.parametrize(
    "made",
    [
        lambda authority, folder: authority.context(days=-1),
        lambda authority, folder: authority.context("other.example"),
        certificate_of_another,
    ],
    ids=["expired", "wrong host", "authority that nobody knows"],
)
def test_certificates_are_verified(trusted: Authority, tmp_path: Path, made: Callable[..., ssl.SSLContext]) -> None:
    with wire(says(OK), made(trusted, tmp_path)) as server:
        answer = post(server.url("https"))
    assert (answer.failure_class, answer.status, server.heads) == ("tls_cert", None, [])
    assert "certificate was refused" in answer.error


def test_the_machines_authorities_are_not_those_of_tests(authority: Authority) -> None:
    with wire(says(OK), authority.context()) as server:
        assert post(server.url("https")).failure_class == "tls_cert"


def test_tls_below_1_2_is_refused(trusted: Authority) -> None:
    context = trusted.context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSVersion"):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with wire(says(OK), context) as server:
        assert post(server.url("https")).failure_class == "tls"


def test_plain_http_where_tls_is_expected() -> None:
    with wire(says(OK)) as server:
        assert timed(server.url("https")).failure_class == "tls"


# What a receiver gets


def test_the_bytes_on_the_wire_are_those_that_were_stored() -> None:
    body = ("Grüße, 世界 𝄞 \u2028" * 5000).encode()[: 64 * 1024]
    with wire(says(OK)) as server:
        assert post(server.url(), body).failure_class == ""
    assert server.bodies == [body]


def test_a_receiver_gets_the_event_and_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login robot password hunter2\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    cookie = b"HTTP/1.1 200 OK\r\nset-cookie: session=1; path=/\r\ncontent-length: 0\r\n\r\n"
    with wire(says(cookie)) as server, wire(says(OK)) as proxy, sender.session(1) as through:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        for url in (server.url(), server.url(), server.url().replace("//", "//user:secret@")):
            post(url, through=through)
    assert proxy.opened == 0
    for head in server.heads:
        assert {line.partition(b":")[0].lower() for line in head.split(b"\r\n")[1:]} == {
            b"host", b"content-type", b"content-length", b"user-agent", b"accept", b"accept-encoding", b"webhook-id",
            b"webhook-timestamp", b"webhook-signature",
        }  # fmt: skip
    assert len(server.heads) == 3


def test_an_attempt_names_its_delivery() -> None:
    with wire(says(OK)) as server, sender.session(1) as through:
        sender.send(through, sender.Sending(7, 8, 9, server.url(), "evt_1", b"{}"), [b"k" * 32], 1)
    assert b"x-cleanup-delivery-id: 7\r\nx-cleanup-attempt-id: 8\r\nx-cleanup-attempt-number: 9" in server.heads[0]


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 200 OK\r\nno colon\r\nx: y\r\n\r\n", b"HTTP/1.1 200 OK\r\n\xff: 1\r\n\r\n", b"HTTP/1.1 ?\r\n\r\n", b""],
)
def test_the_query_of_a_url_is_neither_logged_nor_kept(caplog: pytest.LogCaptureFixture, answer: bytes) -> None:
    """It may be a secret of the receiver's."""
    with wire(says(answer)) as server:
        found = post(f"{server.url()}?token=hunter2")
    assert "hunter2" not in f"{caplog.text} {found}"
    for url in (
        "http://[::1/?token=hunter2",
        "http://a..b/?token=hunter2",
        "ftp://a/?token=hunter2",
        "a/?token=hunter2",
    ):
        assert "hunter2" not in f"{post(url)} {caplog.text}"


# Connections that are kept


def keeps(*says: bytes | None) -> Behaviour:
    """Answers requests of one connection in turn; None closes it without a word. The first connection alone does so."""

    def behave(server: Wire, connection: socket.socket, number: int) -> None:
        for said in says if number == 1 else (OK, OK):
            server.take(connection)
            if said is None:
                return
            connection.sendall(said)

    return behave


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_phases_are_measured_and_a_kept_connection_has_none(trusted: Authority, secure: bool) -> None:
    with wire(keeps(OK, OK), trusted.context() if secure else None) as server, sender.session(1) as through:
        url = server.url("https" if secure else "http")
        first, second = post(url, through=through), post(url, through=through)
    assert (first.reused, second.reused, server.opened) == (False, True, 1)
    assert None not in (first.dns_ms, first.connect_ms, first.first_byte_ms)
    assert (first.tls_ms is not None) == secure
    assert (second.dns_ms, second.connect_ms, second.tls_ms) == (None, None, None)
    assert second.first_byte_ms is not None
    assert first.peer == second.peer == "127.0.0.1"
    assert first.milliseconds >= sum(each or 0 for each in (first.dns_ms, first.connect_ms, first.tls_ms)) - 2


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_a_kept_connection_that_died_is_replaced_once_within_the_attempt(trusted: Authority, secure: bool) -> None:
    with wire(keeps(OK, None), trusted.context() if secure else None) as server, sender.session(1) as through:
        url = server.url("https" if secure else "http")
        post(url, b'{"n":1}', through=through)
        answer = post(url, b'{"n":2}', through=through)
    assert (answer.failure_class, answer.resent, answer.reused) == ("", True, False)
    assert answer.connect_ms is not None
    assert server.opened == 2
    assert server.bodies == [b'{"n":1}', b'{"n":2}', b'{"n":2}']
    assert server.heads[1] == server.heads[2]


def test_a_second_death_is_a_failure() -> None:
    def behave(server: Wire, connection: socket.socket, number: int) -> None:
        server.take(connection)
        if number == 1:
            connection.sendall(OK)
            server.take(connection)

    with wire(behave) as server, sender.session(1) as through:
        post(server.url(), through=through)
        answer = post(server.url(), through=through)
    assert (answer.failure_class, answer.resent, server.opened, len(server.heads)) == ("network", True, 2, 3)


def test_a_new_connection_that_dies_is_a_failure() -> None:
    with wire(keeps(None)) as server:
        answer = post(server.url())
    assert (answer.failure_class, answer.resent, server.opened) == ("network", False, 1)


@pytest.mark.parametrize("said", [b"HTTP/1.1 2", b"\r\n"])
def test_a_kept_connection_that_began_to_answer_is_not_replaced(said: bytes) -> None:
    with wire(keeps(OK, said)) as server, sender.session(1) as through:
        post(server.url(), through=through)
        answer = post(server.url(), through=through)
    assert (answer.failure_class, answer.resent, server.opened) == ("network", False, 1)


def test_a_kept_connection_that_is_silent_is_not_replaced() -> None:
    def behave(server: Wire, connection: socket.socket, number: int) -> None:
        server.take(connection)
        connection.sendall(OK)
        server.take(connection)
        time.sleep(TOTAL + SLACK)

    with wire(behave) as server, sender.session(1) as through:
        post(server.url(), through=through)
        answer = timed(server.url(), through=through)
    assert (answer.failure_class, answer.resent, server.opened) == ("timeout_ambiguous", False, 1)


def test_an_attempt_without_time_sends_nothing() -> None:
    with wire(keeps(OK, OK)) as server, sender.session(1) as through:
        assert post(server.url(), through=through, total=0).failure_class == "timeout_connect"
        post(server.url(), through=through)
        assert post(server.url(), through=through, total=0).failure_class == "timeout_connect"
    assert len(server.heads) == 1


def test_an_answer_too_many_is_not_taken_for_the_next_events() -> None:
    with wire(keeps(OK + OK, b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n")) as server, sender.session(1) as through:
        post(server.url(), through=through)
        assert post(server.url(), through=through).status == 503


def test_no_file_can_be_opened_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with wire(says(OK)) as server:
        monkeypatch.setattr(socket.socket, "connect", refuse)
        answer = post(server.url())
        monkeypatch.undo()
    assert answer.failure_class == "sender_error"


def test_reaching_connects_agrees_on_tls_and_sends_nothing(trusted: Authority) -> None:
    with wire(says(OK), trusted.context()) as server, sender.session(1) as through:
        answer = sender.reach(through, server.url("https"))
        assert (answer.failure_class, answer.status, answer.peer) == ("", None, "127.0.0.1")
        assert answer.tls_ms is not None
    assert (server.opened, server.heads) == (1, [])


def test_reaching_what_never_speaks_tls_ends_in_time() -> None:
    def silent(server: Wire, connection: socket.socket, number: int) -> None:
        connection.recv(65_536)
        connection.recv(65_536)

    began = time.monotonic()
    with wire(silent) as server, sender.session(1) as through:
        answer = sender.reach(through, server.url("https"), total=TOTAL)
    assert answer.failure_class == "tls"
    assert time.monotonic() - began <= TOTAL + SLACK


@pytest.mark.parametrize(
    ("url", "failure_class"),
    [("http://127.0.0.1:1/", "network"), ("http://10.1.2.3/", "blocked"), ("ftp://127.0.0.1/", "blocked")],
)
def test_reaching_what_cannot_be_reached(url: str, failure_class: str) -> None:
    with sender.session(1) as through:
        answer = sender.reach(through, url)
    assert (answer.failure_class, answer.status) == (failure_class, None)
    assert answer.error
