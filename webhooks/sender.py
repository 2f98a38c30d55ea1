"""One POST to an endpoint. The only module that imports `requests`; its errors stop here.

No redirects, no proxies of the environment, no ~/.netrc, no cookies: a receiver gets the event and nothing else of ours.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.cookiejar import DefaultCookiePolicy
from typing import Final

import requests
import urllib3
from django.conf import settings
from requests.adapters import HTTPAdapter

from webhooks import signing
from webhooks.limits import CONNECT_TIMEOUT, READ_TIMEOUT
from webhooks.models import ERROR_LIMIT, RESPONSE_LIMIT

USER_AGENT: Final = "cleanup-webhooks/1"
DELIVERED: Final = ""
Connections = requests.Session


@dataclass(frozen=True, slots=True)
class Sending:
    """What one attempt sends, and where."""

    delivery_id: int
    attempt_id: int
    number: int
    url: str
    event_id: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of it; `failure_class` is empty for a 2xx, else a class of `webhooks.failures`.

    Times are milliseconds, None for a step that did not happen. `retry_after` is what the endpoint asked for, in seconds.
    `headers` are the few that attempts keep; `bytes_read` counts the body, of which `response` is the beginning.
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


def session(threads: int) -> Connections:
    """Connections for as many threads; plain http only where the deployment allows it."""
    made = Connections()
    made.trust_env = False
    made.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    made.adapters.clear()
    adapter = HTTPAdapter(pool_connections=threads, pool_maxsize=threads, max_retries=0)
    made.mount("https://", adapter)
    if settings.WEBHOOK_ALLOW_HTTP:
        made.mount("http://", adapter)
    return made


def send(through: Connections, sending: Sending, keys: Sequence[bytes], timestamp: int) -> Answer:
    """Post the event. Every failure is an answer; nothing is raised. Called without a transaction, from any thread."""
    began = time.monotonic()

    def answer(status: int | None, failure_class: str, error: str = "", response: bytes = b"") -> Answer:
        return Answer(status, failure_class, error[:ERROR_LIMIT], response, round((time.monotonic() - began) * 1000))

    try:
        with through.post(
            sending.url,
            data=sending.body,
            headers=headers(sending, keys, timestamp),
            timeout=(CONNECT_TIMEOUT, READ_TIMEOUT),
            allow_redirects=False,
            stream=True,
        ) as got:
            # The status line decides: a 2xx whose body breaks off was still acknowledged.
            body = prefix(got)
            if 200 <= got.status_code < 300:
                return answer(got.status_code, DELIVERED, "", body)
            return answer(got.status_code, "status", f"The endpoint answered {got.status_code}.", body)
    except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError, OSError) as error:
        return answer(None, failure_class(error), without_nul(f"{type(error).__name__}: {error}"))


def headers(sending: Sending, keys: Sequence[bytes], timestamp: int) -> dict[str, str]:
    return {
        "content-type": "application/json",
        "user-agent": USER_AGENT,
        "accept": "*/*",
        "accept-encoding": "identity",
        **signing.headers(keys, sending.event_id, timestamp, sending.body),
        "x-cleanup-delivery-id": str(sending.delivery_id),
        "x-cleanup-attempt-id": str(sending.attempt_id),
        "x-cleanup-attempt-number": str(sending.number),
    }


def prefix(got: requests.Response) -> bytes:
    """The first bytes of the body as they came, undecoded; what there is where it breaks off."""
    read = bytearray()
    try:
        while len(read) < RESPONSE_LIMIT and (chunk := got.raw.read1(RESPONSE_LIMIT - len(read), decode_content=False)):
            read += chunk
    except (urllib3.exceptions.HTTPError, OSError):
        pass
    return bytes(read)


def failure_class(error: Exception) -> str:
    if isinstance(error, requests.exceptions.InvalidSchema):
        return "blocked"
    if isinstance(error, requests.exceptions.SSLError):
        return "tls"
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return "timeout_connect"
    if isinstance(error, requests.exceptions.Timeout):
        return "timeout_ambiguous"  # it may have been processed
    return "network"


def without_nul(text: str) -> str:
    """An error may quote what the other side sent; PostgreSQL's text cannot hold NUL."""
    return text.replace("\x00", "\\0")
