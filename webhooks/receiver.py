"""For receivers: is this request from who it says, and is it the first of its kind? Needs the standard library alone.

Copy this file. Standard Webhooks (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md),
scheme v1: HMAC-SHA256 over `id.timestamp.body`, as bytes. Whatever a request holds, Refused is all that comes of it.
"""

import base64
import binascii
import hmac
import re
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, Protocol

PREFIX: Final = "whsec_"
SHORTEST_KEY, LONGEST_KEY = 24, 64
LONGEST_HEADER: Final = 4096
LARGEST_BODY: Final = 128 * 1024  # twice what is ever sent
TOLERANCE: Final = 300
ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
SECONDS: Final = re.compile(r"[1-9][0-9]{0,11}")
LENGTH: Final = re.compile(r"[0-9]{1,18}")
Order = Literal["next", "gap", "late"]


class Mapped(Protocol):
    """A dictionary, or what a web framework has for headers."""

    def items(self) -> Iterable[tuple[str | bytes, str | bytes]]: ...


Headers = Mapped | Iterable[tuple[str | bytes, str | bytes]]


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Refused(ValueError):
    """Not to be trusted. Answer `status` with an empty body: the words are for your log, never for the sender."""

    def __init__(self, why: str, status: int = 401) -> None:
        super().__init__(why)
        self.status = status


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

    `headers` is anything with `items()`, as of http.server, Django, Flask or aiohttp, or the list of pairs of ASGI, in str or
    bytes; a WSGI environ is neither. `body` is the raw body, before anything parses it; `now` the receiver's clock, in
    seconds since 1970. Raises Refused.
    """
    keys = [parse_secret(secret) for secret in secrets]
    told = pairs(headers)
    id, stamp, given = (header(told, f"webhook-{name}") for name in ("id", "timestamp", "signature"))
    if not ID.fullmatch(id):
        raise Refused("webhook-id is not an id")
    if not SECONDS.fullmatch(stamp):
        raise Refused("webhook-timestamp is not a number of seconds")
    if not abs(now - int(stamp)) <= tolerance:  # a clock that is not a number is no clock
        raise Refused("webhook-timestamp is too far from now")
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise Refused("the body is not bytes: verify it before anything parses it")
    if len(body) > LARGEST_BODY:
        raise Refused("the body is larger than any that is sent", 413)
    candidates = [each.encode() for each in given.split(" ") if each.startswith("v1,")]
    expected = [signature(key, id, int(stamp), body).encode() for key in keys]
    matches = [hmac.compare_digest(one, other) for one in expected for other in candidates]
    if not any(matches):
        raise Refused("no signature fits")
    return Verified(id, int(stamp))


def pairs(headers: Headers) -> list[tuple[str, str]]:
    """Names, in lower case, and values; read once, since an iterator gives them once."""
    try:
        told = headers.items() if hasattr(headers, "items") else headers
        return [(text(key).lower(), text(value)) for key, value in told]
    except (AttributeError, TypeError, ValueError):
        raise Refused("headers are pairs of names and values") from None


def header(told: Sequence[tuple[str, str]], name: str) -> str:
    """The one header of this name."""
    found = [value for key, value in told if key == name]
    if len(found) != 1 or not found[0].isascii() or len(found[0]) > LONGEST_HEADER:
        raise Refused(f"{name} is missing, given twice, or no header of ours")
    return found[0]


def text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str.__str__(value)


def parse_secret(secret: str) -> bytes:
    """The key in `whsec_` + standard base64 of 24 to 64 bytes. Raises Refused for anything else: call it at start-up, too.

    Strict, since a lenient decoder makes a short key of a URL-safe text by dropping what it does not know.
    """
    if not isinstance(secret, str) or not secret.startswith(PREFIX):
        raise Refused(f"a secret is a text that begins with {PREFIX}")
    encoded = secret.removeprefix(PREFIX)
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise Refused(f"after {PREFIX} a secret is standard base64, with + and / and its padding") from None
    if not SHORTEST_KEY <= len(key) <= LONGEST_KEY or base64.b64encode(key).decode() != encoded:
        raise Refused(f"a secret holds {SHORTEST_KEY} to {LONGEST_KEY} bytes, written in one way alone")
    return key


def signature(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    digest = hmac.new(key, b"%s.%d.%s" % (id.encode(), timestamp, body), sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


def read_body(stream: Readable, content_length: str | bytes | None, *, limit: int = LARGEST_BODY) -> bytes:
    """The body of a request, for servers that do not bound it themselves. Events are never sent without their length.

    Raises Refused, with status 411 without a length, 413 over the limit of bytes, 400 for no number or a body that breaks
    off. Close the connection after it: what was not read is still on its way.
    """
    if not content_length:
        raise Refused("no content-length", 411)
    told = text(content_length) if isinstance(content_length, (str, bytes)) else ""
    if not LENGTH.fullmatch(told):
        raise Refused("content-length is not a number of bytes", 400)
    length = int(told)
    if length > limit:
        raise Refused("the body is over the limit", 413)
    body = stream.read(length)
    if len(body or b"") != length:
        raise Refused("the body breaks off", 400)
    return body


class Store(ABC):
    """Which events have been handled. Copies come: a delivery is sent again until it is acknowledged.

    Keyed by (endpoint, id): one store behind two endpoints must not drop the second one's copy. Ids are remembered for
    ever: attempts of one delivery end after 76 hours (88 with their jitter), but a person can redeliver any event, and an
    endpoint that was disabled gets what was held, after any time, under the id that it always had.
    """

    TABLES: Final = (
        "CREATE TABLE IF NOT EXISTS webhook_seen (endpoint text NOT NULL, id text NOT NULL, "
        "at double precision NOT NULL, PRIMARY KEY (endpoint, id))",
        "CREATE TABLE IF NOT EXISTS webhook_sequence (endpoint text NOT NULL, subject text NOT NULL, "
        "sequence bigint NOT NULL, PRIMARY KEY (endpoint, subject))",
    )
    mark = "%s"  # how the driver marks a parameter

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Any]:
        """A cursor. The block's end commits, an error in it undoes; inside another block it is part of that one."""

    def create_tables(self) -> None:
        with self.transaction() as cursor:
            for statement in self.TABLES:
                cursor.execute(statement)

    @contextmanager
    def first_time(self, endpoint: str, id: str) -> Iterator[bool]:
        """`with seen.first_time(endpoint, id) as first: …` remembers the id once the block has ended without an error.

        A second copy waits for the first one to end, so that the effect of two at once is one.
        """
        with self.transaction() as cursor:
            self.ask(
                cursor, "INSERT INTO webhook_seen VALUES (?, ?, ?) ON CONFLICT DO NOTHING", endpoint, id, time.time()
            )
            yield cursor.rowcount == 1

    def order(self, endpoint: str, subject: str, sequence: int) -> Order:
        """How this event of a subject stands to the highest handled before it; call it in the block of `first_time`.

        `gap`: one before it was given up, or is of a type or a time that is not subscribed to. `late`: a later one is
        handled already, so leave alone what that one has set.
        """
        with self.transaction() as cursor:
            self.ask(
                cursor, "SELECT sequence FROM webhook_sequence WHERE endpoint = ? AND subject = ?", endpoint, subject
            )
            row = cursor.fetchone()
            last = row[0] if row else 0
            if sequence <= last:
                return "late"
            told = "INSERT INTO webhook_sequence VALUES (?, ?, ?) ON CONFLICT (endpoint, subject) DO UPDATE "
            told += "SET sequence = excluded.sequence WHERE excluded.sequence > webhook_sequence.sequence"
            self.ask(cursor, told, endpoint, subject, sequence)
            if cursor.rowcount != 1:  # a later one was handled while this one waited for it
                return "late"
        return "next" if sequence == last + 1 else "gap"

    def forget(self, before: float) -> int:
        """Forget ids first handled before then, in seconds since 1970; returns how many. Their copies have effects again."""
        with self.transaction() as cursor:
            self.ask(cursor, "DELETE FROM webhook_seen WHERE at < ?", before)
            forgotten: int = cursor.rowcount
        return forgotten

    def ask(self, cursor: Any, statement: str, *values: Any) -> None:
        cursor.execute(statement.replace("?", self.mark), values)


class Seen(Store):
    """A store in a SQLite file of its own. One block runs at a time; others wait, 30 seconds at most.

    Not for a block that awaits something: whoever else wants it would stop the loop.
    """

    mark = "?"

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._open: ContextVar[sqlite3.Connection | None] = ContextVar("open", default=None)
        with closing(self._connect()) as connection:
            # One write to disk for each event, where the default takes three.
            connection.execute("PRAGMA journal_mode = WAL")
        self.create_tables()

    @property
    def connection(self) -> sqlite3.Connection:
        """Inside a block: what is written through it commits with the remembrance, or not at all."""
        connection = self._open.get()
        if connection is None:
            raise RuntimeError("seen.connection is there inside `with seen.first_time(…)` alone.")
        return connection

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=30, isolation_level=None)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        if (connection := self._open.get()) is not None:
            yield connection.cursor()
            return
        with closing(self._connect()) as connection:  # closing undoes what is not committed
            connection.execute("BEGIN IMMEDIATE")
            mine = self._open.set(connection)
            try:
                yield connection.cursor()
            finally:
                self._open.reset(mine)
            connection.execute("COMMIT")


class DatabaseSeen(Store):
    """A store in the receiver's own PostgreSQL or SQLite, so that an effect there and its remembrance are one transaction.

    Django: `DatabaseSeen(django.db.connection, django.db.transaction.atomic)`; psycopg: `DatabaseSeen(connection,
    connection.transaction)`. `create_tables()` once, or TABLES in a migration.
    """

    def __init__(self, connection: Any, atomic: Callable[[], AbstractContextManager[Any]]) -> None:
        self._connection = connection
        self._atomic = atomic

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with self._atomic(), self._connection.cursor() as cursor:
            yield cursor
