"""Receipts as CSV, by PostgreSQL's own COPY over a connection of its own: constant memory, and no Python for a row's fields.

Receipt numbers are handed out before they are committed, so "the receipts there are now" has no highest number by itself:
one with a lower number may still be on its way. `last_number` waits until nothing below it can come any more. Receipts are
append-only, so from then on the receipts up to that number are the same for every part, today and next year.
"""

import time
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple, Self, TypeAlias

import psycopg
from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.models import QuerySet

from cleanup_project.base.canonical import SQL_INSTANT
from cleanup_project.base.csvcells import guarded_sql
from ledger.exceptions import TryLater
from ledger.models import Receipt

AT_ONCE: Final = 2  # exports that read at the same time
PIECE: Final = 1 << 16  # bytes
OPEN_WAIT: Final = 10.0  # seconds for transactions that are open when an export is asked for

SLOT: Final = "SELECT pg_try_advisory_lock(hashtext('slot of exports'), %s)"
WORK: Final = "SELECT pg_try_advisory_lock(hashtext('export of receipts'), %s)"
WRITERS: Final = """
    SELECT virtualtransaction FROM pg_locks
    WHERE locktype = 'relation' AND relation = 'ledger_receipt'::regclass AND mode = 'RowExclusiveLock' AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND pid IS DISTINCT FROM pg_backend_pid()
"""
NOBODY_WORKS: Final = "SELECT pg_try_advisory_xact_lock(hashtext('export of receipts'), %s)"


Buffer: TypeAlias = bytes | bytearray | memoryview


class Column(NamedTuple):
    """`text`: came from outside, and is guarded for people."""

    name: str
    expression: str
    meaning: str
    text: bool = False


COLUMNS: Final = (
    Column("receipt", "r.id", "Number of the receipt here; rows are in the order of issued_at, then of this."),
    Column(
        "issued_at",
        f"to_char(r.issued_at AT TIME ZONE 'UTC', '{SQL_INSTANT}')",
        "When every object version that it names was confirmed gone, UTC.",
    ),
    Column("outcome", "r.outcome", "deleted, by_absence or already_absent (docs/receipts.md)."),
    Column("tenant", "t.code", "Code of the tenant.", text=True),
    Column("policy", "p.code", "Code of the retention policy.", text=True),
    Column("revision", "split_part(r.command_key, '-', -1)", "Number of the policy revision."),
    Column("run", "n.key", "Key of the run.", text=True),
    Column("approved_by", "u.username", "Who approved the run; empty under a standing authorisation.", text=True),
    Column("bucket", "b.name", "Bucket of the original.", text=True),
    Column("key", "l.key", "Key of the original; empty once names are forgotten.", text=True),
    Column("version_id", "l.version_id", "Its version id; empty once names are forgotten.", text=True),
    Column(
        "further_names",
        "CASE WHEN r.target_count > 1 THEN (SELECT json_agg(json_build_array(o.bucket, o.key, o.version_id) ORDER BY "
        "o.ordinal)::text FROM ledger_receiptlocator o WHERE o.command_id = r.command_id AND o.ordinal > 1) END",
        "Further targets as a JSON list of [bucket, key, version id]; empty where there are none, or forgotten.",
    ),
    Column(
        "commitment",
        # Inside of a JSON text its quotes would be escaped, so the first that is found is the original's.
        """left(split_part(convert_from(r.body, 'UTF8'), '"commitment":"', 2), 64)""",
        "HMAC-SHA256 of the original's bucket, key and version id under the tenant's salt, hex.",
    ),
    Column("targets", "r.target_count", "How many object versions it names."),
    Column("bytes", "r.bytes", "Their size together."),
    Column("command_key", "r.command_key", "Key of the command: tenant:asset:version:policy-revision.", text=True),
    Column("event_id", "r.event_id", "The event that tells of it."),
    Column("sha256", "encode(r.digest, 'hex')", "SHA-256 of the document, hex; `receipt_sha256` of the event."),
)
DOCUMENT: Final = Column("body", "convert_from(r.body, 'UTF8')", "The document: canonical JSON, which sha256 is over.")


def columns(*, exact: bool) -> tuple[Column, ...]:
    return (*COLUMNS, DOCUMENT) if exact else COLUMNS


def statement(rows: QuerySet[Receipt], *, exact: bool, limit: int | None = None) -> tuple[str, tuple[Any, ...]]:
    """The COPY of these receipts and its parameters, in the order of time and number.

    `exact`: nothing is guarded against spreadsheets, and each row ends with its document.
    """
    chosen, parameters = rows.order_by().query.sql_with_params()
    told = ", ".join(
        f"{guarded_sql(each.expression) if each.text and not exact else each.expression} AS {each.name}"
        for each in columns(exact=exact)
    )
    query = (
        f"SELECT {told} FROM ({chosen}) r JOIN retention_tenant t ON t.id = r.tenant_id "  # noqa: S608 - ours, and Django's
        "JOIN retention_retentionpolicy p ON p.id = r.policy_id JOIN retention_bucket b ON b.id = r.bucket_id "
        "JOIN ledger_cleanuprun n ON n.id = r.run_id LEFT JOIN base_user u ON u.id = n.authorised_by_id "
        "LEFT JOIN ledger_receiptlocator l ON l.command_id = r.command_id AND l.ordinal = 1 "
        f"ORDER BY r.issued_at, r.id {f'LIMIT {limit:d}' if limit else ''}"
    )
    return f"COPY ({query}) TO STDOUT WITH (FORMAT csv, HEADER true)", parameters


@dataclass(slots=True)
class Tally:
    """What a file holds so far. Rows begin with the number and the time of their receipt."""

    rows: int = 0
    size: int = 0
    first_row: bytes = b""
    last_row: bytes = b""
    hash: Any = field(default_factory=sha256)

    def counted(self, rows: list[Buffer], heading: bytes = b"") -> bytes:
        """The rows as one piece, after what is no row."""
        piece = b"".join([heading, *rows])
        if rows:
            self.first_row = self.first_row or bytes(rows[0])
            self.last_row = bytes(rows[-1])
        self.rows += len(rows)
        self.size += len(piece)
        self.hash.update(piece)
        return piece

    @property
    def first_receipt(self) -> int | None:
        return int(self.first_row.split(b",", 1)[0]) if self.rows else None

    @property
    def last(self) -> tuple[int, datetime] | None:
        """Number and time of the last receipt."""
        if not self.rows:
            return None
        number, issued_at, _rest = self.last_row.split(b",", 2)
        return int(number), datetime.fromisoformat(issued_at.decode())


class Source:
    """A connection of its own, on which one export reads; closed, it gives back its slot and its claim, however it ends."""

    def __init__(self) -> None:
        self.connection = psycopg.connect(**connection.get_connection_params(), autocommit=True)
        self.connection.execute("SET TIME ZONE 'UTC'")
        self.connection.execute("SET statement_timeout = 0")
        self.connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        self.connection.read_only = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def locked(self, lock: str, number: int) -> bool:
        row = self.connection.execute(lock, [number]).fetchone()
        assert row is not None
        return bool(row[0])

    def claim(self, export_id: int) -> bool:
        """Whether nobody else works at this export, until the connection is closed."""
        return self.locked(WORK, export_id)

    def pieces(
        self,
        rows: QuerySet[Receipt],
        tally: Tally,
        *,
        exact: bool,
        limit: int | None = None,
        until: float | None = None,
    ) -> Generator[bytes]:
        """The file, piece by piece, counted in `tally`; past `until` (time.monotonic()) it ends after a whole row.

        PostgreSQL sends one message for the header and one for each row.
        """
        query, parameters = statement(rows, exact=exact, limit=limit)
        # One transaction, and so one snapshot: names that are forgotten meanwhile are missing from no row of it.
        with self.connection.transaction(), self.connection.cursor() as cursor, cursor.copy(query, parameters) as copy:
            yield tally.counted([], bytes(copy.read()))
            waiting, size = list[Buffer](), 0
            while row := copy.read():
                waiting.append(row)
                size += len(row)
                if size >= PIECE:
                    yield tally.counted(waiting)
                    waiting, size = [], 0
                    if until is not None and time.monotonic() >= until:
                        raise psycopg.Rollback  # ends the COPY and this block, and nothing else
            yield tally.counted(waiting)


def take_slot() -> Source:
    """A source with one of the slots. Raises TryLater while all of them are taken."""
    source = Source()
    if any(source.locked(SLOT, number) for number in range(AT_ONCE)):
        return source
    source.connection.close()
    raise TryLater(f"{AT_ONCE} exports are being read already: try again when one of them has ended.")


def is_abandoned(export_id: int) -> bool:
    """Whether nobody works at this export; true until the end of the caller's transaction."""
    with connection.cursor() as cursor:
        cursor.execute(NOBODY_WORKS, [export_id])
        return bool(cursor.fetchone()[0])


def last_number(*, wait: float = OPEN_WAIT) -> int:
    """The highest number of a receipt, once nothing with a lower one can come any more.

    Whoever writes a receipt holds a lock on the table before its number is drawn, and until its transaction ends. So
    whatever may still write a number up to the highest is among those who hold one after looking; when each of them has
    ended, what was not committed never will be. Transaction numbers would not do: they are handed out for the whole
    server, and somebody's long transaction in another database would keep exports waiting.
    Raises TryLater where one is open longer than `wait` seconds.
    """
    until = time.monotonic() + wait
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(max(id), 0) FROM ledger_receipt")
        highest: int = cursor.fetchone()[0]
        open_ones = writers(cursor)
        while open_ones:
            if time.monotonic() >= until:
                raise TryLater(
                    f"A transaction that may still write receipts has been open for {wait:.0f} seconds, so what there is "
                    "cannot be told exactly. Try again in a minute; see pg_stat_activity if that does not help."
                )
            time.sleep(0.05)
            open_ones &= writers(cursor)
    return highest


def writers(cursor: CursorWrapper) -> set[str]:
    """The other transactions that have written receipts, or are about to, prepared ones included."""
    cursor.execute(WRITERS)
    return {virtual for (virtual,) in cursor.fetchall()}
