"""What is kept of an answer, and what it asks for. Pure."""

from email.utils import formatdate

import pytest

from tests.webhooks.http import says, wire
from tests.webhooks.sending import post
from webhooks import sender
from webhooks.sender import kept, seconds_asked

NOW = 784_111_000.0  # 777 seconds before the dates of RFC 9110 §5.6.7


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0), ("120", 120), (" 120 ", 120), ("43200", 43_200), ("43201", 43_200), ("1000000000000", 43_200),
        ("9" * 5000, 43_200), ("120.5", None), ("-5", None), ("+5", None), ("1e3", None), ("1_0", None), ("", None),
        ("soon", None), ("٣", None), ("120, 60", None), ("GMT", None), ("Sun, 99 Nov 1994 08:49:37 GMT", None),
        ("Sun, 06 Nov 99999999999 08:49:37 GMT", None), ("5 Jan", None),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 777), ("Sunday, 06-Nov-94 08:49:37 GMT", 777), ("Sun Nov  6 08:49:37 1994", 777),
        (formatdate(NOW - 1, usegmt=True), None), (formatdate(NOW, usegmt=True), 0),
        (formatdate(NOW + 10**8, usegmt=True), 43_200),
    ],
)  # fmt: skip
def test_retry_after(value: str, seconds: float | None) -> None:
    assert seconds_asked(value, NOW) == seconds


@pytest.mark.parametrize(("status", "seconds"), [(429, 7), (503, 7), (500, 7), (400, None), (301, None), (200, None)])
def test_only_who_is_busy_or_broken_asks_for_time(status: int, seconds: float | None) -> None:
    with wire(says(f"HTTP/1.1 {status} X\r\nRetry-After: 7\r\ncontent-length: 0\r\n\r\n".encode())) as server:
        assert post(server.url()).retry_after == seconds


def test_a_date_is_reckoned_from_the_attempts_own_time() -> None:
    date = formatdate(1_790_000_060, usegmt=True)  # tests send at 1_790_000_000
    with wire(says(f"HTTP/1.1 503 X\r\nretry-after: {date}\r\n\r\n".encode())) as server:
        assert 58 <= (post(server.url()).retry_after or 0) <= 60


def test_a_few_headers_are_kept_and_shown_as_ascii() -> None:
    lines = b"Server: Gr\xfc\xdfe \x1b[31m\x00\r\nX-Request-Id: 1\r\nx-request-id: 2\r\nX-Secret: no\r\n\r\n"
    with wire(says(b"HTTP/1.1 200 OK\r\n" + lines)) as server:
        assert post(server.url()).headers == {"server": "Gr\\xfc\\xdfe \\x1b[31m\\x00", "x-request-id": "1, 2"}


def test_kept_headers_fit_in_2_kb() -> None:
    found = kept(dict.fromkeys(sender.KEPT_HEADERS, "\x00" * 600))
    assert sum(len(name) + len(value) for name, value in found.items()) == 2048
    assert kept({"x-other": "1"}) == {}


@pytest.mark.parametrize(
    ("status", "failure"),
    [(204, ""), (302, "redirect"), (400, "rejected"), (401, "auth"), (404, "not_found"), (409, "conflict"), (410, "gone"),
     (413, "too_large"), (429, "throttled"), (500, "transient"), (999, "transient")],
)  # fmt: skip
def test_a_status_has_its_class_and_is_named(status: int, failure: str) -> None:
    with wire(says(f"HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n".encode())) as server:
        answer = post(server.url())
    assert (answer.status, answer.failure_class) == (status, failure)
    assert answer.error.startswith(f"The endpoint answered {status}." if failure else "")
    assert bool(answer.error) == bool(failure)


@pytest.mark.parametrize(
    "url", ["ftp://public.test/", "public.test", "http://", "https://[::1", "http://a..b/", "http://*/"]
)
def test_what_is_no_url_is_answered_and_not_raised(url: str) -> None:
    answer = post(url)
    assert (answer.failure_class in {"blocked", "dns_name", "dns_temp"}, answer.status) == (True, None)


@pytest.mark.parametrize(("status", "failure"), [(200, ""), (410, "gone")])
def test_a_head_that_cannot_be_used_has_said_its_status_all_the_same(status: int, failure: str) -> None:
    head = f"HTTP/1.1 {status} X\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok"
    with wire(says(head.encode())) as server:
        answer = post(server.url())
    assert (answer.status, answer.failure_class, answer.truncated) == (status, failure, True)
