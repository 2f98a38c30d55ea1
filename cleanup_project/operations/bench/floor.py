"""The plain loop that `bench ledger` is compared with: claim, then write the rows that the ledger writes."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from django.db import connection, transaction

from cleanup_project.base import clock
from cleanup_project.base.arrays import array, copy_in
from ledger.settle import LOCATORS, RECEIPTS
from webhooks.outbox import Emitted, Notice, emit

BATCH: Final = 1000
BODY: Final = 1150  # bytes of a receipt's body, as ours are

CLAIM: Final = """
    WITH due AS (
        SELECT id FROM ledger_cleanupcommand
        WHERE state = 'ready' AND bucket_id = %s AND due_at <= now() AND lease_until IS NULL
        ORDER BY due_at, id LIMIT %s FOR NO KEY UPDATE SKIP LOCKED
    )
    UPDATE ledger_cleanupcommand c SET lease_token = lease_token + 1, claims = claims + 1,
        lease_until = now() + interval '60 s'
    FROM due WHERE c.id = due.id RETURNING c.id, c.key, c.asset, c.run_id, c.policy_id, c.bucket_id
"""
TARGETS: Final = """
    SELECT command_id, key, version_id, object_version_id FROM ledger_commandtarget
    WHERE command_id = ANY (%(id)s::bigint[]) ORDER BY command_id
"""
WRITES: Final = (
    """
    INSERT INTO ledger_attempt (command_id, token, late, cycle, outcome, charged, failure_class, detail, claimed_at,
        settled_at, worker)
    SELECT u, 1, false, 0, 'deleted', false, '', '', now(), now(), 'w1' FROM unnest(%(id)s::bigint[]) u
    """,
    "UPDATE ledger_commandtarget SET gone_at = now() WHERE command_id = ANY (%(id)s::bigint[])",
    """
    UPDATE ledger_cleanupcommand c SET state = 'deleted', outcome = 'deleted', event_id = u.event, lease_until = NULL
    FROM unnest(%(id)s::bigint[], %(event)s::text[]) AS u (id, event)
    WHERE c.id = u.id AND c.id = ANY (%(id)s::bigint[])
    """,
    """
    UPDATE retention_objectversion SET gone_at = now(), gone_reason = 'destroyed' WHERE id = ANY (%(version)s::bigint[])
    """,
)


def floor(tenant_id: int, bucket_id: int) -> int:
    """Write everything that settling the bucket's commands writes; returns how many commands."""
    done = 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(CLAIM, [bucket_id, BATCH])
            rows = cursor.fetchall()
            ids = [row[0] for row in rows]
            cursor.execute(TARGETS, {"id": array(ids)})
            targets = cursor.fetchall()
            cursor.execute(
                "INSERT INTO ledger_request (command_id, token, made_at, sent_before, worker) "
                "SELECT u, 1, now(), now(), 'w1' FROM unnest(%s::bigint[]) u",
                [array(ids)],
            )
        if not rows:
            return done
        record(tenant_id, rows, targets)
        done += len(rows)


def record(tenant_id: int, rows: list[Any], targets: list[Any]) -> None:
    versions = [target[3] for target in targets]
    with transaction.atomic(), connection.cursor() as cursor:
        notices = [
            Notice(type="media.deleted", subject=asset, name=key, data={"command_key": key, "outcome": "deleted"})
            for _, key, asset, *_ in rows
        ]
        at = clock.now()
        events = emit("bench", notices, at=at)
        parameters = {
            "id": array(row[0] for row in rows),
            "event": array(event.event_id for event in events),
            "version": array(versions),
        }
        for statement in WRITES:
            cursor.execute(statement, parameters)
        copy_in(cursor, "ledger_receipt", RECEIPTS, receipts(tenant_id, rows, events, at))
        copy_in(cursor, "ledger_receiptlocator", LOCATORS, ((each[0], 1, "plain", *each[1:3]) for each in targets))


def receipts(tenant_id: int, rows: Sequence[Any], events: Sequence[Emitted], at: datetime) -> Iterator[tuple[Any, ...]]:
    for row, event in zip(rows, events, strict=True):
        body = json.dumps({"command_key": row[1]}).encode().ljust(BODY)
        digest = sha256(body).digest()
        yield row[0], row[1], tenant_id, *row[3:], "deleted", event.event_id, 1, 1048576, body, digest, at
