"""Events enter the outbox inside the transaction that makes them true: both commit, or neither.

A body is frozen here as canonical JSON; these bytes are what is signed, sent and kept. The envelope follows Standard
Webhooks (https://www.standardwebhooks.com); the members of one body are `data`, `id`, `schema_version`, `sequence`,
`subject`, `timestamp` and `type`.
"""

import json
from base64 import b32encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

import psycopg
from django.db import IntegrityError, connection, transaction

from cleanup_project.base import canonical, clock, queue, sqlfiles
from webhooks.eventtypes import EVENT_TYPES, EVERY
from webhooks.models import BODY_LIMIT

KEYS_KEPT: Final = timedelta(days=30)
CHUNK: Final = 1000


class ObjectName(NamedTuple):
    """One exact object version, by what may name people."""

    bucket: str
    key: str
    version_id: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell. `subject` is the lane: its events are delivered in order. `name` and `occurrence` make the id.

    `data` is thin: identifiers, digests and outcome, nothing personal, since receivers keep what they get. `objects` is
    called where an endpoint asks for object keys, and nowhere else.
    """

    type: str
    subject: str
    name: str
    data: Mapping[str, Any] | canonical.Written
    occurrence: str = ""
    command_key: str = ""
    objects: Callable[[], Sequence[ObjectName]] | None = None


@dataclass(frozen=True, slots=True)
class Emitted:
    """One event in the outbox; `id` is its row, `event_id` what receivers know it by."""

    id: int
    event_id: str
    sequence: int
    body_sha256: bytes


@lru_cache(maxsize=4096)  # who emits a thousand has asked for the same thousand a moment before
def event_id(type: str, name: str, occurrence: str = "") -> str:
    """`evt_` and 40 characters: the same fact has the same id for ever, so that no recovery can tell it twice.

    Derived from SHA-256 over the three texts, joined by NUL, which none of them may hold (ValueError).
    """
    told = f"{type}\x00{name}\x00{occurrence}"
    if told.count("\x00") != 2:
        raise ValueError("The type, name and occurrence of an event cannot hold NUL.")
    return "evt_" + b32encode(sha256(told.encode()).digest()[:25]).decode().lower()


def emit(tenant: str, notices: Sequence[Notice], *, at: datetime) -> list[Emitted]:
    """Write events and the deliveries that they owe, and ring for dispatch; returns them in the order of the notices.

    `at` is the time that the bodies carry: the database's, aware. An event that no endpoint subscribes to is settled at
    once; a disabled endpoint gets its deliveries, which wait. Emit once in a transaction, after its other locks: the
    lanes are locked in order of their subjects, and two blocks in opposite orders could deadlock.

    Raises RuntimeError outside a transaction, where fact and event could part; ValueError for what cannot be written
    (NotCanonical for data); IntegrityError where an event of the same type, name and occurrence exists already.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("outbox.emit needs the transaction of the act that it tells of.")
    if at.tzinfo is None:
        raise ValueError("The time of an event must be aware: take it from the database.")
    unknown = {notice.type for notice in notices} - EVENT_TYPES.keys()
    if unknown:
        raise ValueError(f"No such event: {', '.join(sorted(unknown))}. Describe it in webhooks/eventtypes.py.")
    if not notices:
        return []
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        lanes = take_sequences(cursor, tenant, notices)
        return write(cursor, tenant, notices, lanes, at)


def take_sequences(cursor: psycopg.Cursor[Any], tenant: str, notices: Sequence[Notice]) -> list[tuple[int, int]]:
    """(lane, sequence) of each notice. Locks the lanes in order, whatever the order of the notices is."""
    subjects = [notice.subject for notice in notices]
    told = canonical.text(subjects)
    cursor.execute(sqlfiles.read(__file__, "lanes.sql"), [tenant, told], prepare=False)
    own = Counter(subjects)
    lanes = dict[str, int]()
    last = dict[str, int]()
    for lane, subject, n in cursor:
        lanes[subject] = lane
        last[subject] = n - own[subject]
    numbered = []
    for subject in subjects:
        last[subject] += 1
        numbered.append((lanes[subject], last[subject]))
    return numbered


def write(
    cursor: psycopg.Cursor[Any],
    tenant: str,
    notices: Sequence[Notice],
    lanes: Sequence[tuple[int, int]],
    at: datetime,
) -> list[Emitted]:
    """Insert events and deliveries; a statement after the one that locked the lanes, so that it sees what they guard."""
    stamp = canonical.instant(at)
    ids = [event_id(notice.type, notice.name, notice.occurrence) for notice in notices]
    bodies = [
        body(notice, each, sequence, stamp) for notice, each, (_lane, sequence) in zip(notices, ids, lanes, strict=True)
    ]
    digests = [sha256(each).digest() for each in bodies]
    detailed = with_objects(cursor, tenant, notices, ids, lanes, stamp)
    parameters = {
        "tenant": tenant,
        "at": at,
        "types": sorted({notice.type for notice in notices}),
        "facts": facts(notices, ids, lanes),
        "bodies": bodies,
        "digests": digests,
        "detailed_ids": [each for each, _body in detailed],
        "detailed": [told for _id, told in detailed],
    }
    # Planned anew each time: a plan kept from when the tables were empty would scan them for ever.
    cursor.execute(sqlfiles.read(__file__, "emit.sql"), parameters, prepare=False)
    rows = {each: row for each, *row in cursor}
    if any(owed for _id, owed in rows.values()):
        ring()
    return [
        Emitted(rows[each][0], each, sequence, digest)
        for each, (_lane, sequence), digest in zip(ids, lanes, digests, strict=True)
    ]


def facts(notices: Sequence[Notice], ids: Sequence[str], lanes: Sequence[tuple[int, int]]) -> str:
    """As one JSON text, put together by hand and read by C: psycopg looks at every element of an array in Python."""
    text = canonical.text
    told = (
        f'{{"event_id":"{each}","type":"{notice.type}","subject":{text(notice.subject)},"name":{text(notice.name)},'
        f'"occurrence":{text(notice.occurrence)},"command_key":{text(notice.command_key)},"lane":{lane},'
        f'"sequence":{sequence},"version":{EVERY[notice.type].version}}}'
        for each, notice, (lane, sequence) in zip(ids, notices, lanes, strict=True)
    )
    return f"[{','.join(told)}]"


def envelope(notice: Notice, id: str, sequence: int, stamp: str) -> bytes:
    """As `canonical.encode` would write it, put together by hand: twice as fast for a thousand at once."""
    return (
        f'{{"data":{canonical.text(notice.data)},"id":"{id}","schema_version":{EVERY[notice.type].version},'
        f'"sequence":{sequence},"subject":{canonical.text(notice.subject)},"timestamp":"{stamp}","type":{canonical.text(notice.type)}}}'
    ).encode()


def body(notice: Notice, id: str, sequence: int, stamp: str) -> bytes:
    """The envelope, within its limit (ValueError)."""
    told = envelope(notice, id, sequence, stamp)
    if len(told) > BODY_LIMIT:
        raise ValueError(
            f"The body of {notice.type} for {notice.name} has {len(told)} bytes; {BODY_LIMIT} is the limit."
        )
    return told


def ring() -> None:
    queue.wake("webhooks.tasks.dispatch")


def with_objects(
    cursor: psycopg.Cursor[Any],
    tenant: str,
    notices: Sequence[Notice],
    ids: Sequence[str],
    lanes: Sequence[tuple[int, int]],
    stamp: str,
) -> list[tuple[str, bytes]]:
    """(event id, body with object keys) of those events that any endpoint asks for in that way."""
    types = sorted({notice.type for notice in notices if notice.objects is not None})
    if not types:
        return []
    cursor.execute(
        """
        SELECT t.type FROM unnest(%b::text[]) AS t (type) WHERE EXISTS (
            SELECT FROM webhooks_endpoint e WHERE e.tenant = %b AND e.include_keys AND e.retired_at IS NULL
                AND (t.type = ANY (e.event_types) OR e.event_types = '{*}'))
        """,
        [types, tenant],
        prepare=False,
    )
    asked = {type for (type,) in cursor}
    return [
        (each, detailed_body(notice, notice.objects(), each, sequence, stamp))
        for each, notice, (_lane, sequence) in zip(ids, notices, lanes, strict=True)
        if notice.objects is not None and notice.type in asked
    ]


def detailed_body(notice: Notice, objects: Sequence[ObjectName], id: str, sequence: int, stamp: str) -> bytes:
    """The body with as many of the objects as there is room for, in their order, and the number of those left out."""
    told = json.loads(canonical.text(notice.data))

    def listing(number: int, omitted: int) -> bytes:
        data = told | {
            "objects": [each._asdict() for each in objects[:number]],
            "objects_omitted": omitted,
        }
        return envelope(replace(notice, data=data), id, sequence, stamp)

    room = BODY_LIMIT - len(listing(0, len(objects))) + 1  # the first has no comma before it
    number = 0
    for each in objects:
        room -= len(canonical.encode(each._asdict())) + 1
        if room < 0:
            break
        number += 1
    return listing(number, len(objects) - number)


def forget_details(*, older_than: timedelta = KEYS_KEPT) -> int:
    """Forget the bodies with object keys of events that were settled longer ago; returns how many.

    The events stay, and whoever redelivers one sends it without object keys; while a redelivery is under way its body is
    kept. Walks in short transactions, in order, up to the first chunk that is too young as a whole. Raises ValueError
    below a day, which the database refuses as well.
    """
    if older_than < timedelta(days=1):
        raise ValueError("Keep bodies with object keys for at least a day: receivers may ask for the event again.")
    total: int = 0
    after = 0
    before = clock.now() - older_than
    while True:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                parameters: dict[str, Any] = {"before": before, "after": after, "limit": CHUNK}
                cursor.execute(sqlfiles.read(__file__, "forget_details.sql"), parameters)
                read, forgotten, last, young = cursor.fetchone()
        except IntegrityError:  # a redelivery came between the look and the guard's: the next pass goes on
            return total
        total += forgotten
        if read < CHUNK or young:
            return total
        after = last
