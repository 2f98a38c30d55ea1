"""Where a POST may go: connect() is replaced by a recorder, so that no packet leaves."""

import errno
import socket
from collections import Counter
from typing import Any

import pytest

from tests.webhooks.sending import post
from webhooks import checks

FORBIDDEN = [
    "http://127.0.0.1/", "http://127.1/", "http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/", "http://0/",
    "http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[::127.0.0.1]/", "http://localhost/", "http://localhost./",
    "http://①②⑦.0.0.1/", "http://169.254.169.254/", "http://meta.test/", "http://[fd00:ec2::254]/",
    "http://[64:ff9b::a9fe:a9fe]/", "http://[2002:a9fe:a9fe::1]/", "http://[::ffff:a9fe:a9fe]/",
    "http://[::ffff:0:a9fe:a9fe]/", "http://[64:ff9b:1::a9fe:a9fe]/", "http://[2001:0:a9fe:a9fe::1]/", "http://10.0.0.5/",
    "http://172.16.0.1/", "http://192.168.0.1/", "http://100.64.0.1/", "http://192.0.0.192/", "http://192.88.99.1/",
    "http://198.18.0.1/", "http://224.0.0.1/", "http://240.0.0.1/", "http://255.255.255.255/", "http://192.0.2.1/",
    "http://[fe80::1]/", "http://[fec0::1]/", "http://[fc00::1]/", "http://[ff02::1]/", "http://[100::1]/",
    "http://[5f00::1]/", "http://[3fff::1]/", "http://[2001:db8::1]/", "http://[4000::1]/", "http://mixed.test/",
    "http://mixed2.test/", "http://public.test@127.0.0.1/", "http://127.0.0.1\\@public.test/",
]  # fmt: skip
PUBLIC = "93.184.216.34"
NAMES = {
    "mixed.test": [PUBLIC, "10.0.0.5"],
    "mixed2.test": ["10.0.0.5", PUBLIC],
    "public.test": [PUBLIC],
    "meta.test": ["169.254.169.254"],
    "localhost": ["127.0.0.1"],
    "many.test": [f"93.184.216.{number}" for number in range(1, 9)],
}


class Network:
    """Look-ups and connections that were asked for."""

    def __init__(self) -> None:
        self.asked = Counter[str]()
        self.connected: list[str] = []
        self.error = OSError(errno.ECONNREFUSED, "recorded")
        self._real = socket.getaddrinfo

    def getaddrinfo(self, host: str, port: int, *, type: int) -> list[Any]:
        name = host.rstrip(".")
        self.asked[name] += 1
        if name == "rebind.test":
            found = [PUBLIC if self.asked[name] == 1 else "169.254.169.254"]
        elif name in NAMES:
            found = NAMES[name]
        else:
            return self._real(host, port, type=type, flags=socket.AI_NUMERICHOST)
        return [(socket.AF_INET, type, 6, "", (address, port)) for address in found]

    def connect(self, address: tuple[Any, ...]) -> None:
        self.connected.append(address[0])
        raise self.error


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Network:
    made = Network()
    settings.WEBHOOK_ALLOW_CIDRS = []
    monkeypatch.setattr(socket, "getaddrinfo", made.getaddrinfo)
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: made.connect(address))
    return made


@pytest.mark.parametrize("url", FORBIDDEN)
def test_no_spelling_of_a_forbidden_address_is_connected_to(network: Network, url: str) -> None:
    answer = post(url)
    # What remains of a backslash is the public name, or no URL at all.
    assert set(network.connected) <= ({PUBLIC} if "\\" in url else set())
    assert answer.failure_class == ("network" if network.connected else "blocked")
    assert answer.status is None


def test_a_fragment_does_not_hide_the_host(network: Network) -> None:
    post("http://public.test#@127.0.0.1/")
    assert network.connected == [PUBLIC]


@pytest.mark.parametrize("url", ["http://public.test/", "http://8.8.8.8/", "http://[2606:4700::1111]/"])
def test_public_addresses_are_connected_to(network: Network, url: str) -> None:
    assert post(url).failure_class == "network"
    assert len(network.connected) == 1


def test_a_name_is_looked_up_once_for_a_connection_and_checked_each_time(network: Network) -> None:
    assert post("http://rebind.test/").failure_class == "network"
    assert (network.connected, network.asked["rebind.test"]) == ([PUBLIC], 1)
    answer = post("http://rebind.test/")
    assert (answer.failure_class, network.connected) == ("blocked", [PUBLIC])
    assert answer.error == "rebind.test is not allowed: 169.254.169.254 is a metadata service of a cloud."


def test_allowed_networks_do_not_open_metadata(network: Network, settings: Any) -> None:
    settings.WEBHOOK_ALLOW_CIDRS = ["0.0.0.0/0", "::/0"]
    for url in ("http://meta.test/", "http://[fd00:ec2::254]/", "http://192.0.0.192/", "http://[::ffff:a9fe:a9fe]/"):
        assert post(url).failure_class == "blocked"
    assert network.connected == []
    post("http://10.0.0.5/")
    assert network.connected == ["10.0.0.5"]


def test_at_most_four_addresses_of_a_name_are_tried(network: Network) -> None:
    post("http://many.test/")
    assert network.connected == NAMES["many.test"][:4]


def test_https_and_its_ports_alone(network: Network, settings: Any) -> None:
    settings.WEBHOOK_ALLOW_HTTP = False
    assert post("http://public.test/").failure_class == "blocked"
    answer = post("https://public.test:22/")
    assert answer.failure_class == "blocked"
    assert answer.error == "The URL is not allowed: port 22 is not allowed; allowed are 443, 8443."
    assert network.asked.total() == 0
    settings.WEBHOOK_PORTS = [22]
    post("https://public.test:22/")
    assert network.connected == [PUBLIC]


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (OSError(errno.EMFILE, "too many open files"), "sender_error"),
        (OSError(errno.ENETUNREACH, "no route"), "network"),
        (TimeoutError("timed out"), "timeout_connect"),
    ],
)
def test_what_connect_says(network: Network, error: OSError, failure: str) -> None:
    network.error = error
    assert post("http://public.test/").failure_class == failure


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "dns_name"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "dns_temp"),
        (socket.gaierror(socket.EAI_FAIL, "Server failure"), "dns_temp"),
        (UnicodeError("label too long"), "dns_name"),
    ],
)
def test_what_a_look_up_says(network: Network, monkeypatch: pytest.MonkeyPatch, error: Exception, failure: str) -> None:
    def look_up(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    answer = post("http://public.test/")
    assert (answer.failure_class, answer.dns_ms, answer.connect_ms) == (failure, None, None)


@pytest.mark.parametrize(
    ("url", "errors"),
    [
        ("", 0), ("http://proxy:3128", 0), ("https://user:p%40ss@proxy.example:3128/", 0), ("http://[::1]:3128", 0),
        ("proxy:3128", 1), ("socks5://proxy:1080", 1), ("http://", 1), ("http://proxy:99999", 1), ("http://proxy:0", 1),
        ("http://proxy/path", 1), ("http://[::1", 1), ("http://pro xy", 1),
    ],
)  # fmt: skip
def test_a_malformed_proxy_is_found_at_the_start(settings: Any, url: str, errors: int) -> None:
    settings.WEBHOOK_EGRESS_PROXY = url
    assert [error.id for error in checks.egress_proxy()] == ["webhooks.E003"] * errors
