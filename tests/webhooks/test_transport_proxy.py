"""An egress proxy, set by the operator: names are its to resolve, and its failures are not the endpoint's."""

import base64
import re
import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.webhooks.certificates import Authority
from tests.webhooks.http import Behaviour, Wire, says, wire
from tests.webhooks.sending import post
from webhooks import sender

NAME = "receiver.test"  # that the proxy alone can find
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Authority:
    made = Authority.made(tmp_path)
    monkeypatch.setattr(sender, "AUTHORITIES", str(made.path))
    settings.WEBHOOK_ALLOW_CIDRS = []  # the proxy's own address needs no permission but the setting
    return made


def tunnel(server: Wire, connection: socket.socket, number: int) -> None:
    """CONNECT to the named port on this machine, whatever the name."""
    server.take(connection)
    port = re.match(rb"CONNECT [^:]+:(\d+) ", server.heads[-1])
    assert port
    with socket.create_connection(("127.0.0.1", int(port[1]))) as onward:
        connection.sendall(b"HTTP/1.1 200 Connection established\r\nvia: test\r\n\r\n")
        back = Thread(target=pump, args=(onward, connection))
        back.start()
        pump(connection, onward)
        back.join()


def pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65_536):
            sink.sendall(piece)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


def answers(status: int) -> Behaviour:
    return says(f"HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n".encode())


def via(proxy: Wire, settings: Any, scheme: str = "http", user: str = "") -> None:
    settings.WEBHOOK_EGRESS_PROXY = proxy.url(scheme, f"{user}127.0.0.1").removesuffix("/hook")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_https_goes_through_a_tunnel(
    trusted: Authority, settings: Any, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    secure = trusted.context() if scheme == "https" else None
    with wire(says(OK), trusted.context(NAME)) as server, wire(tunnel, secure) as proxy:
        via(proxy, settings, scheme, "user:p%40ss@")
        answer = post(server.url("https", NAME), b"x" * 65_536)
    assert (answer.failure_class, answer.response, answer.peer) == ("", b"ok", "127.0.0.1")
    assert None not in (answer.dns_ms, answer.connect_ms, answer.tls_ms, answer.first_byte_ms)
    (head,) = proxy.heads
    credentials = base64.b64encode(b"user:p@ss").decode()
    assert head.decode().split("\r\n") == [
        f"CONNECT {NAME}:{server.port} HTTP/1.1",
        f"host: {NAME}:{server.port}",
        f"Proxy-Authorization: Basic {credentials}",
    ]
    assert b"roxy" not in server.heads[0]
    assert server.bodies == [b"x" * 65_536]


def test_a_tunnel_is_kept_and_replaced_when_it_died(trusted: Authority, settings: Any) -> None:
    def behave(server: Wire, connection: socket.socket, number: int) -> None:
        for _ in range(2):
            server.take(connection)
            connection.sendall(OK)
        if number == 1:
            server.take(connection)

    with wire(behave, trusted.context(NAME)) as server, wire(tunnel) as proxy:
        via(proxy, settings)
        with sender.session(1) as through:
            found = [post(server.url("https", NAME), through=through) for _ in range(3)]
    assert [(each.failure_class, each.reused, each.resent) for each in found] == [
        ("", False, False), ("", True, False), ("", False, True),
    ]  # fmt: skip
    assert (proxy.opened, server.opened) == (2, 2)


def test_the_endpoints_certificate_is_verified_behind_a_proxy(trusted: Authority, settings: Any) -> None:
    with wire(says(OK), trusted.context("other.test")) as server, wire(tunnel) as proxy:
        via(proxy, settings)
        assert post(server.url("https", NAME)).failure_class == "tls_cert"
    assert server.heads == []


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (407, "sender_error"),
        (400, "sender_error"),
        (302, "sender_error"),
        (403, "blocked"),
        (502, "network"),
        (504, "network"),
    ],
)
def test_what_the_proxy_says_to_connect(trusted: Authority, settings: Any, status: int, failure: str) -> None:
    with wire(answers(status)) as proxy:
        via(proxy, settings, user="user:secret@")
        answer = post(f"https://{NAME}/", total=2)
    assert (answer.status, answer.failure_class, len(proxy.heads)) == (None, failure, 1)
    assert str(status) in answer.error
    assert "secret" not in answer.error


@pytest.mark.parametrize(
    "behave", [says(b""), says(b"SSH-2.0\r\n"), says(b"HTTP/1.1 200 OK\r\n", for_ever=b"x: y\r\n" * 99)]
)
def test_a_proxy_that_speaks_something_else(trusted: Authority, settings: Any, behave: Behaviour) -> None:
    with wire(behave) as proxy:
        via(proxy, settings)
        assert post(f"https://{NAME}/", total=2).failure_class == "sender_error"


def test_a_proxy_that_waits_for_the_endpoint_ends_at_the_deadline(trusted: Authority, settings: Any) -> None:
    with wire(says(b"", b"H", drip=0.8)) as proxy:
        via(proxy, settings)
        answer = post(f"https://{NAME}/", total=0.6)
    assert (answer.failure_class, answer.status) == ("timeout_connect", None)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_cannot_be_reached(trusted: Authority, settings: Any, scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    settings.WEBHOOK_EGRESS_PROXY = f"{scheme}://127.0.0.1:{port}"
    for url in (f"https://{NAME}/", f"http://{NAME}/"):
        answer = post(url)
        assert answer.failure_class == "sender_error"
        assert answer.error.startswith("The egress proxy cannot be used: 127.0.0.1 cannot be connected to")


def test_a_proxy_whose_certificate_is_not_trusted(trusted: Authority, settings: Any, tmp_path: Path) -> None:
    with wire(tunnel, Authority.made(tmp_path, "another").context()) as proxy:
        via(proxy, settings, "https")
        assert post(f"https://{NAME}/").failure_class == "sender_error"


@pytest.mark.parametrize(("status", "failure"), [(200, ""), (407, "sender_error"), (502, "transient")])
def test_plain_http_is_handed_to_the_proxy(trusted: Authority, settings: Any, status: int, failure: str) -> None:
    with wire(answers(status)) as proxy:
        via(proxy, settings)
        assert post(f"http://{NAME}/hook").failure_class == failure
    assert proxy.heads[0].startswith(f"POST http://{NAME}/hook HTTP/1.1\r\n".encode())


def test_a_port_that_is_not_allowed_is_not_asked_of_the_proxy(trusted: Authority, settings: Any) -> None:
    settings.WEBHOOK_ALLOW_HTTP = False
    with wire(tunnel) as proxy:
        via(proxy, settings)
        assert post(f"https://{NAME}:22/").failure_class == "blocked"
    assert proxy.opened == 0


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_handshake_that_drips_through_a_proxy_ends_at_the_deadline(
    trusted: Authority, settings: Any, scheme: str
) -> None:
    def drip(server: Wire, connection: socket.socket, number: int) -> None:
        connection.recv(65_536)
        for byte in b"\x16\x03\x03\x40\x00\x02" + b"x" * 99:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)

    secure: ssl.SSLContext | None = trusted.context() if scheme == "https" else None
    with wire(drip) as server, wire(tunnel, secure) as proxy:
        via(proxy, settings, scheme)
        began = time.monotonic()
        answer = post(server.url("https", NAME), total=0.6)
        assert time.monotonic() - began <= 0.8
    assert answer.failure_class == "tls"


def test_reaching_goes_through_the_tunnel_and_sends_nothing(trusted: Authority, settings: Any) -> None:
    with wire(says(OK), trusted.context(NAME)) as server, wire(tunnel) as proxy:
        via(proxy, settings)
        with sender.session(1) as through:
            answer = sender.reach(through, server.url("https", NAME))
        assert (answer.failure_class, answer.error) == ("", "")
    assert proxy.heads[0].startswith(b"CONNECT receiver.test:")
    assert server.heads == []
