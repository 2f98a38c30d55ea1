"""Events as they are sent, forgeries of them, and the answers to both: what `webhooks.contract` is made of.

Needs the standard library alone.
"""

import base64
import hmac
import http.client
import json
import secrets
import select
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

PATIENCE: Final = 10  # seconds that an answer may take before there is none
CHUNK: Final = 64 * 1024
FLIPS: Final = 24
SHOWN: Final = 200  # characters of an answer


@dataclass(frozen=True)
class Target:
    """The endpoint under test. `grace`: seconds that a second effect, were there one, might come after the answer."""

    url: str
    secret: str
    old_secret: str = ""
    expired_secret: str = ""
    second_url: str = ""
    effects_url: str = ""
    grace: float = 1.0


@dataclass(frozen=True)
class Request:
    """What is posted: an event with its three headers, or a forgery; `what` says which."""

    what: str
    headers: tuple[tuple[str, bytes], ...]
    body: bytes

    def value(self, name: str) -> bytes:
        return dict(self.headers)[name]

    def put(self, name: str, value: str | bytes, what: str = "") -> "Request":
        put = value.encode() if isinstance(value, str) else value
        others = tuple((each, is_now) for each, is_now in self.headers if each != name)
        shown = put[:60].decode("latin-1") + ("…" if len(put) > 60 else "")
        return replace(self, headers=(*others, (name, put)), what=what or f"{name}: {shown}")


@dataclass(frozen=True)
class Answer:
    """What came back; without a status, `error` says why."""

    status: int | None
    head: bytes = b""
    body: bytes = b""
    seconds: float = 0.0
    error: str = ""

    @property
    def is_success(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    def __str__(self) -> str:
        told = self.body[:SHOWN].decode("utf-8", "backslashreplace")
        return self.error or " ".join(f"{self.status} in {self.seconds:.2f} s {ascii(told)[1:-1]}".split())


Make = Callable[[Target], Iterable[Request]]


def sample(type: str, id: str, *, sequence: int = 1, **members: Any) -> bytes:
    """The body of an event of that type, of an asset that does not exist, as canonical JSON."""
    data: dict[str, Any] = {"test": True}
    if type == "media.deleted":
        digest = sha256(id.encode()).hexdigest()
        data |= {"command_key": f"test:{id}", "outcome": "deleted", "receipt_sha256": digest, "run": "test"}
        data |= {"bytes": 1, "policy": "test", "revision": 1, "targets": 1}
    moment = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    told = {"data": data, "id": id, "schema_version": 1, "sequence": sequence, "subject": f"test:{id}"}
    return canonical(told | {"timestamp": moment, "type": type} | members)


def canonical(told: Any) -> bytes:
    return json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def new_id() -> str:
    """An id like those of events; no event has it, and a log shows what it is."""
    return "evt_test" + base64.b32encode(secrets.token_bytes(25)).decode().lower()[4:]


def sign(secret: str, id: bytes, stamp: bytes, body: bytes) -> bytes:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return b"v1," + base64.b64encode(hmac.digest(key, b".".join((id, stamp, body)), "sha256"))


def event(target: Target, what: str = "a valid event", *, type: str = "media.deleted", **members: Any) -> Request:
    id = new_id()
    return signed(target.secret, id, int(time.time()), sample(type, id, **members), what)


def signed(secret: str, id: str, stamp: int, body: bytes, what: str) -> Request:
    parts = id.encode(), str(stamp).encode()
    names = ("webhook-id", "webhook-timestamp", "webhook-signature")
    return Request(what, tuple(zip(names, (*parts, sign(secret, *parts, body)), strict=True)), body)


def other_secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def flipped(value: bytes, is_header: bool) -> Iterator[bytes]:
    """The value with one bit changed, at places all over it; for a header what can be sent in one."""
    for number in range(FLIPS):
        place = number * len(value) // FLIPS
        changed = bytes([value[place] ^ (1 << number % 8)])
        if not is_header or b"!" <= changed <= b"~":
            yield value[:place] + changed + value[place + 1 :]


def flipped_bodies(target: Target) -> Iterator[Request]:
    right = event(target)
    for number, body in enumerate(flipped(right.body, is_header=False), 1):
        yield replace(right, body=body, what=f"flip {number} in the body")


def flipped_headers(name: str) -> Make:
    def make(target: Target) -> Iterator[Request]:
        right = event(target)
        return (right.put(name, value) for value in flipped(right.value(name), is_header=True))

    return make


def with_signature(*values: str | bytes) -> Make:
    return lambda target: [event(target).put("webhook-signature", value) for value in values]


def around_signature(before: str, after: str) -> Make:
    def make(target: Target) -> list[Request]:
        right = event(target)
        name = "webhook-signature"
        return [right.put(name, before.encode() + right.value(name) + after.encode())]

    return make


def without(name: str) -> Make:
    def make(target: Target) -> list[Request]:
        right = event(target)
        kept = tuple(pair for pair in right.headers if pair[0] != name)
        return [replace(right, headers=kept, what=f"an event without {name}")]

    return make


def doubled(name: str, other: Callable[[], str]) -> Make:
    """The header twice, the right one first and the right one last."""

    def make(target: Target) -> list[Request]:
        right, wrong = event(target), (name, other().encode())
        what = f"{name} twice, with different values"
        return [
            replace(right, headers=pairs, what=what) for pairs in ((*right.headers, wrong), (wrong, *right.headers))
        ]

    return make


def truncated(target: Target) -> list[Request]:
    right = event(target)
    given = right.value("webhook-signature")
    return [right.put("webhook-signature", given[:length]) for length in (4, 12, len(given) - 1)]


def other_key(target: Target) -> list[Request]:
    right = event(target)
    return [replace(signed_again(right, other_secret()), what="an event signed with another key")]


def signed_again(right: Request, *signers: str, stamp: bytes = b"") -> Request:
    """The same event, signed by these secrets, at its own time or another."""
    id, at = right.value("webhook-id"), stamp or right.value("webhook-timestamp")
    given = b" ".join(sign(secret, id, at, right.body) for secret in signers)
    return right.put("webhook-timestamp", at).put("webhook-signature", given, right.what)


def at(offset: Callable[[], float], what: str) -> Make:
    """A well-signed event of another time."""
    return lambda target: [replace(signed_again(event(target), target.secret, stamp=b"%d" % offset()), what=what)]


def stamped(write: Callable[[int], str]) -> Make:
    """The present time in another form, signed both as it is written and as the number that a lenient reader takes it for."""

    def make(target: Target) -> list[Request]:
        right = event(target)
        number = right.value("webhook-timestamp")
        told = write(int(number))
        odd = told.encode("latin-1" if max(told) <= "\xff" else "utf-8")
        id = right.value("webhook-id")
        both = b" ".join(sign(target.secret, id, each, right.body) for each in (odd, number))
        return [right.put("webhook-signature", both).put("webhook-timestamp", odd)]

    return make


def written_differently(target: Target) -> list[Request]:
    right = event(target)
    told = json.loads(right.body)
    reversed_members = json.dumps(dict(reversed(told.items())), separators=(",", ":")).encode()
    bodies = {
        "spaces": json.dumps(told).encode(),
        "a line's end": right.body + b"\n",
        "another order": reversed_members,
    }
    return [replace(right, body=body, what=f"the same JSON with {how}") for how, body in bodies.items()]


def post(url: str, request: Request) -> Answer:
    """Post it. An answer that comes before the body is through, as 413 may, is taken."""
    began = time.monotonic()
    try:
        with closing(connect(url)) as connection:
            connection.putrequest("POST", path_of(url), skip_accept_encoding=True)
            connection.putheader("content-type", "application/json")
            connection.putheader("content-length", str(len(request.body)))
            for name, value in request.headers:
                connection.putheader(name, value)
            connection.endheaders()
            with suppress(BrokenPipeError, ConnectionResetError):
                for start in range(0, len(request.body), CHUNK):
                    if start and select.select([connection.sock], [], [], 0.05 if start == CHUNK else 0)[0]:
                        break
                    connection.send(request.body[start : start + CHUNK])
            got = connection.getresponse()
            return Answer(got.status, str(got.getheaders()).encode(), got.read(CHUNK), time.monotonic() - began)
    except (OSError, http.client.HTTPException) as error:
        return Answer(None, seconds=time.monotonic() - began, error=f"no answer: {type(error).__name__}: {error}")


def connect(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(parts.hostname or "", parts.port, timeout=PATIENCE, context=context)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)


def path_of(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def effects(target: Target) -> int:
    """How many effects events have had so far, as the receiver says: a number, or {"count": number}. Raises ValueError."""
    try:
        with closing(connect(target.effects_url)) as connection:
            connection.request("GET", path_of(target.effects_url))
            told = json.loads(connection.getresponse().read(CHUNK))
        return int(told["count"] if isinstance(told, dict) else told)
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"--effects-url says no number: {type(error).__name__}: {error}") from error
