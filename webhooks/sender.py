"""One POST to an endpoint. The only module that imports `requests`; its errors stop here.

No redirects, no proxies of the environment, no ~/.netrc, no cookies, no credentials from a URL: a receiver gets the event
and nothing else of ours. What it answers with is read up to a limit, never unpacked, and kept as bytes.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any, Final, Self

import requests
import urllib3
from django.conf import settings
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from cleanup_project.base import bounded
from webhooks import addresses, connections, failures, signing
from webhooks.addresses import Policy
from webhooks.connections import Failed, Post, ProxySocket, Resolver, tls_context
from webhooks.limits import (
    BODY_LIMIT,
    BODY_TIMEOUT,
    CONNECT_TIMEOUT,
    HEADERS_LIMIT,
    READ_TIMEOUT,
    RETRY_AFTER_LIMIT,
    SEND,
)
from webhooks.models import ERROR_LIMIT, RESPONSE_LIMIT

USER_AGENT: Final = "cleanup-webhooks/1"
DELIVERED: Final = failures.DELIVERED
AUTHORITIES = DEFAULT_CA_BUNDLE_PATH
POOLS: Final = 64  # hosts whose connections are kept
KEPT_HEADERS: Final = ("content-type", "retry-after", "date", "server", "x-request-id", "traceparent")
TROUBLE: Final = (requests.RequestException, urllib3.exceptions.HTTPError, ValueError, OSError)
NO_URL: Final = (
    requests.exceptions.InvalidURL,
    requests.exceptions.InvalidSchema,
    requests.exceptions.MissingSchema,
    urllib3.exceptions.LocationParseError,
)


@dataclass(frozen=True, slots=True)
class Sending:
    """What one POST sends, and where. Only an attempt of a delivery has the three numbers; a ping has none."""

    delivery_id: int | None
    attempt_id: int | None
    number: int | None
    url: str
    event_id: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it; `failure_class` is empty for a 2xx, else a class of `webhooks.failures`.

    Times are milliseconds, None for a step that did not happen. `retry_after` is what the endpoint asked for, in seconds.
    `headers` are the few that attempts keep; `bytes_read` counts the body, of which `response` is the beginning, and all
    of it unless `truncated`.
    """

    status: int | None
    failure_class: str
    error: str
    response: bytes
    milliseconds: int
    retry_after: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    bytes_read: int = 0
    truncated: bool = False
    peer: str = ""
    reused: bool = False
    resent: bool = False
    dns_ms: int | None = None
    connect_ms: int | None = None
    tls_ms: int | None = None
    first_byte_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """What was read of an answer: nothing, the status alone where the head broke off, or all but the end of a long body."""

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    bytes_read: int = 0
    truncated: bool = False


class Connections:
    """Connections for as many threads, as the settings are now: where they may go, and through which proxy.

    The adapter of `requests` is used without its session, which brings half of a request's CPU time, and redirects, cookies,
    `.netrc` and the environment's proxies, of which a receiver must see nothing.
    """

    def __init__(self, threads: int) -> None:
        self.policy, self.resolver = policy(), Resolver()
        self.adapter = Adapter(self.policy, threads)
        proxy = settings.WEBHOOK_EGRESS_PROXY
        self.proxies = dict.fromkeys(self.policy.schemes, proxy) if proxy else {}

    def post(self, url: str, body: bytes, lines: Mapping[str, str]) -> requests.Response:
        """The answer, its body unread. Raises `Failed`, and what requests raises for a URL."""
        request = requests.PreparedRequest()
        request.method, request.url, request.body = "POST", prepared(url), body
        request.headers = CaseInsensitiveDict({**lines, "content-length": str(len(body))})
        return self.adapter.send(request, stream=True, timeout=(CONNECT_TIMEOUT, READ_TIMEOUT), proxies=self.proxies)

    def connect(self, url: str) -> None:
        """Connect as a POST would, TLS and the proxy's tunnel included, and send nothing. Raises as `post` does."""
        request = requests.PreparedRequest()
        request.method, request.url = "POST", prepared(url)
        pool: Any = self.adapter.get_connection_with_tls_context(request, verify=True, proxies=self.proxies)
        connection = pool._new_conn()  # urllib3 has no public place for a connection without a request
        try:
            if pool.proxy is not None and pool.scheme == "https":
                pool._prepare_proxy(connection)
            else:
                connection.connect()
        finally:
            connection.close()

    def close(self) -> None:
        self.adapter.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@lru_cache(maxsize=256)
def prepared(url: str) -> str:
    """The URL as it is requested, its host in ASCII. Raises what requests raises for one that it cannot use."""
    request = requests.PreparedRequest()
    request.prepare_url(url, None)
    assert request.url is not None
    return request.url


class Adapter(HTTPAdapter):
    def __init__(self, policy: Policy, threads: int) -> None:
        self.policy, self.threads = policy, threads
        super().__init__(pool_connections=POOLS, pool_maxsize=threads, max_retries=0)
        if settings.WEBHOOK_EGRESS_PROXY:
            # Before there are threads, of which one could find the manager with other connections than ours.
            self.proxy_manager_for(settings.WEBHOOK_EGRESS_PROXY)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = connections.POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(proxy, proxy_ssl_context=tls_context(AUTHORITIES, ProxySocket), **kwargs)
        manager.pool_classes_by_scheme = connections.POOLS
        return manager

    def build_connection_pool_key_attributes(
        self, request: requests.PreparedRequest, verify: Any, cert: Any = None
    ) -> tuple[Any, Any]:
        """Refuses the place as it was parsed for the connection, whatever another parser makes of the URL."""
        place, _ = super().build_connection_pool_key_attributes(request, verify, cert)
        port = place["port"] or urllib3.connection.port_by_scheme.get(place["scheme"], 0)
        refusal = self.policy.refusal_of_place(place["scheme"], port)
        if refusal:
            raise Failed("blocked", f"The URL is not allowed: {refusal}.")
        if place["scheme"] == "http":
            return place, {}
        return place, {"ssl_context": tls_context(AUTHORITIES), "cert_reqs": "CERT_REQUIRED"}

    def cert_verify(self, *args: Any) -> None:
        """The shared context verifies; requests would have each connection read the authorities again."""


def policy() -> Policy:
    """Where the settings let webhooks go."""
    return Policy(
        schemes=frozenset({"https", "http"} if settings.WEBHOOK_ALLOW_HTTP else {"https"}),
        ports=None if settings.WEBHOOK_ALLOW_HTTP else frozenset(settings.WEBHOOK_PORTS),
        networks=addresses.networks(settings.WEBHOOK_ALLOW_CIDRS),
    )


def session(threads: int) -> Connections:
    return Connections(threads)


def send(
    through: Connections, sending: Sending, keys: Sequence[bytes], timestamp: int, *, total: float = SEND
) -> Answer:
    """Post the event. Every failure is an answer; nothing is raised. Called without a transaction, from any thread.

    It ends within `total` seconds, whatever the other side does. A 2xx status line is an acknowledgement, even if headers
    or body break off. A connection that was kept open and has died meanwhile is replaced, once.
    """
    began = time.monotonic()
    post = Post(deadline=began + total, policy=through.policy, resolver=through.resolver)
    said = Said()
    with bounded.under(post):
        try:
            said = ask(through, sending, keys, timestamp, post)
            failure_class, text = judged(said)
        except (Failed, *TROUBLE) as error:
            failure_class, text = told(error)
    if said.status is None and post.status is not None:  # what broke came after the status line, which decides
        said = Said(post.status, truncated=True)
        failure_class, text = judged(said)
    return answer_of(post, said, failure_class, text, began=began, timestamp=timestamp)


def reach(through: Connections, url: str, *, total: float = READ_TIMEOUT) -> Answer:
    """Whether the endpoint can be connected to within `total` seconds, TLS included; nothing is sent, nothing raised.

    The class of failure is empty where it can, and there is no status. Called without a transaction, from any thread.
    """
    began = time.monotonic()
    post = Post(deadline=began + total, policy=through.policy, resolver=through.resolver)
    failure_class, text = DELIVERED, ""
    with bounded.under(post):
        try:
            through.connect(url)
        except (Failed, *TROUBLE) as error:
            failure_class, text = told(error)
    return answer_of(post, Said(), failure_class, text, began=began, timestamp=0)


def told(error: Exception) -> tuple[str, str]:
    """The class of what went wrong, and words for it."""
    if isinstance(error, Failed):
        return error.failure_class, str(error)
    if isinstance(error, NO_URL):  # its text quotes the query, which may hold a secret of the receiver's
        return "blocked", f"The URL cannot be used: {type(error).__name__}."
    return "network", f"No answer could be had: {type(error).__name__}."


def answer_of(post: Post, said: Said, failure_class: str, text: str, *, began: float, timestamp: int) -> Answer:
    return Answer(
        status=said.status,
        failure_class=failure_class,
        error=visible(text)[:ERROR_LIMIT],
        response=said.body,
        milliseconds=connections.since(began),
        retry_after=retry_after(said, timestamp + time.monotonic() - began),
        headers=kept(said.headers),
        bytes_read=said.bytes_read,
        truncated=said.truncated,
        peer=post.peer,
        reused=post.reused,
        resent=post.fresh,
        dns_ms=post.dns_ms,
        connect_ms=post.connect_ms,
        tls_ms=post.tls_ms,
        first_byte_ms=post.first_byte_ms,
    )


def judged(said: Said) -> tuple[str, str]:
    """The class of an answer, and words for it."""
    assert said.status is not None
    failure_class = failures.of_status(said.status)
    if failure_class == DELIVERED:
        return DELIVERED, ""
    hint = " Redirects are not followed: enter the URL that answers by itself." if failure_class == "redirect" else ""
    return failure_class, f"The endpoint answered {said.status}.{hint}"


def ask(through: Connections, sending: Sending, keys: Sequence[bytes], timestamp: int, post: Post) -> Said:
    """Raises `Failed`, and what requests raises for a URL."""
    lines = headers(sending, keys, timestamp)
    try:
        return ask_once(through, sending, lines, post)
    except Failed as failure:
        if not failure.stale:
            raise
        post.fresh = True
        return ask_once(through, sending, lines, post)


def ask_once(through: Connections, sending: Sending, lines: Mapping[str, str], post: Post) -> Said:
    with through.post(sending.url, sending.body, lines) as got:
        body, count, whole = read(got, post)
        return Said(
            got.status_code, {name.lower(): value for name, value in got.headers.items()}, body, count, not whole
        )


def headers(sending: Sending, keys: Sequence[bytes], timestamp: int) -> dict[str, str]:
    numbers = {
        "x-cleanup-delivery-id": sending.delivery_id,
        "x-cleanup-attempt-id": sending.attempt_id,
        "x-cleanup-attempt-number": sending.number,
    }
    return {
        "content-type": "application/json",
        "user-agent": USER_AGENT,
        "accept": "*/*",
        "accept-encoding": "identity",
        **signing.headers(keys, sending.event_id, timestamp, sending.body),
        **{name: str(number) for name, number in numbers.items() if number is not None},
    }


def read(got: requests.Response, post: Post) -> tuple[bytes, int, bool]:
    """The first bytes of the body as they came, how many were read, and whether the first ones are all that there is."""
    post.deadline = min(post.deadline, time.monotonic() + BODY_TIMEOUT)
    post.limit = post.received + 2 * BODY_LIMIT  # the framing of tiny chunks is many times their size
    first, count = bytearray(), 0
    try:
        while count < BODY_LIMIT:
            chunk = got.raw.read1(BODY_LIMIT - count, decode_content=False)
            if not chunk:
                return bytes(first), count, count == len(first)
            first += chunk[: RESPONSE_LIMIT - len(first)]
            count += len(chunk)
    except (Failed, urllib3.exceptions.HTTPError, OSError, ValueError):
        pass
    return bytes(first), count, False


def kept(found: Mapping[str, str]) -> dict[str, str]:
    """The few headers that attempts keep, in characters that a database and a page can show."""
    result, room = {}, HEADERS_LIMIT
    for name in KEPT_HEADERS:
        if name in found and room > len(name):
            result[name] = visible(found[name])[: room - len(name)]
            room -= len(name) + len(result[name])
    return result


def visible(text: str) -> str:
    """What the other side sent may hold anything: control characters and what is not ASCII become escapes."""
    return re.sub(r"[^ -~]", lambda found: found[0].encode("unicode_escape").decode(), text)


def retry_after(said: Said, now: float) -> float | None:
    """What an endpoint that is busy or broken asks for, in seconds."""
    if said.status is None or not (said.status == 429 or said.status >= 500):
        return None
    return seconds_asked(said.headers.get("retry-after", ""), now)


def seconds_asked(value: str, now: float) -> float | None:
    """Retry-After (RFC 9110 §10.2.3), seconds or a date, as seconds from `now` (Unix time), at most twelve hours.

    None for what is neither, and for the past.
    """
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value), RETRY_AFTER_LIMIT)
    if not value.endswith("GMT") and not re.fullmatch(r"[A-Z][a-z]{2} [A-Z][a-z]{2} .*\d{4}", value):
        return None
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    seconds = date.replace(tzinfo=UTC).timestamp() - now
    return min(seconds, RETRY_AFTER_LIMIT) if seconds >= 0 else None
