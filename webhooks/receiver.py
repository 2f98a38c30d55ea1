"""For receivers: is this request from who it says, and is it the first of its kind? Needs the standard library alone.

Copy this file. Standard Webhooks (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md),
scheme v1: HMAC-SHA256 over `id.timestamp.body`, as bytes.
"""

import base64
import binascii
import hmac
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol

PREFIX: Final = "whsec_"
SHORTEST_KEY, LONGEST_KEY = 24, 64
LONGEST_HEADER: Final = 4096
TOLERANCE: Final = 300
ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
SECONDS: Final = re.compile(r"[0-9]{1,12}")


class Headers(Protocol):
    """A dictionary, or what a web framework has for headers."""

    def items(self) -> Iterable[tuple[str, str]]: ...


class Refused(ValueError):
    """The request, or the secret, is not to be trusted. Answer 401, and do not tell the sender why."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What the signature vouches for besides the body: the event's id, and the second in which this attempt was sent."""

    id: str
    timestamp: int


def verify(
    secrets: Sequence[str],
    headers: Headers,
    body: bytes,
    *,
    now: float,
    tolerance: int = TOLERANCE,
) -> Verified:
    """Check one request against every secret that is valid now (two, while one replaces another).

    `body` is the raw body, before anything parses it; `now` the receiver's clock, in seconds since 1970. Raises Refused.
    """
    keys = [parse_secret(secret) for secret in secrets]
    id, stamp, given = (header(headers, f"webhook-{name}") for name in ("id", "timestamp", "signature"))
    if not ID.fullmatch(id):
        raise Refused("webhook-id is not an id")
    if not SECONDS.fullmatch(stamp):
        raise Refused("webhook-timestamp is not a number of seconds")
    if abs(now - int(stamp)) > tolerance:
        raise Refused("webhook-timestamp is too far from now")
    candidates = [each.encode() for each in given.split(" ") if each.startswith("v1,")]
    expected = [signature(key, id, int(stamp), body).encode() for key in keys]
    matches = [hmac.compare_digest(one, other) for one in expected for other in candidates]
    if not any(matches):
        raise Refused("no signature fits")
    return Verified(id, int(stamp))


def header(headers: Headers, name: str) -> str:
    """The one header of this name, whatever its case."""
    found = [value for key, value in headers.items() if key.lower() == name]
    if len(found) != 1 or not found[0].isascii() or len(found[0]) > LONGEST_HEADER:
        raise Refused(f"{name} is missing, given twice, or no header of ours")
    return found[0]


def parse_secret(text: str) -> bytes:
    """The key in `whsec_` + standard base64 of 24 to 64 bytes. Raises Refused for anything else.

    Strict, since a lenient decoder makes a short key of a URL-safe text by dropping what it does not know.
    """
    if not text.startswith(PREFIX):
        raise Refused(f"a secret begins with {PREFIX}")
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise Refused(f"after {PREFIX} a secret is standard base64, with + and / and its padding") from None
    if not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
        raise Refused(f"a secret holds {SHORTEST_KEY} to {LONGEST_KEY} bytes")
    return key


def signature(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    digest = hmac.new(key, b"%s.%d.%s" % (id.encode(), timestamp, body), sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


class Seen:
    """Which events an endpoint has handled, in a SQLite file. Copies come: a delivery is sent again until it is acknowledged.

    Keyed by (endpoint, id): one store behind two endpoints must not drop the second one's copy.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        with closing(self._connect()) as connection:
            # One write to disk for each event, where the default takes three.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS seen (endpoint TEXT, id TEXT, PRIMARY KEY (endpoint, id)) WITHOUT ROWID"
            )

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=30, isolation_level=None)

    @contextmanager
    def first_time(self, endpoint: str, id: str) -> Iterator[bool]:
        """`with seen.first_time(endpoint, id) as first: …` remembers the id once the block has ended without an error.

        A second copy waits for the first one to end, so that the effect of two at once is one.
        """
        with closing(self._connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                row = connection.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (endpoint, id))
                yield row.rowcount == 1
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
