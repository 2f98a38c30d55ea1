"""Settle a batch in one transaction: outcomes, attempts, command states under the lease token, receipts, events, deliveries.

Locks in the order of the whole product: object versions, commands, targets, lanes, deliveries; tallies last.
"""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from json.encoder import encode_basestring as quoted
from typing import Any, Final

import structlog
from django.db import connection, transaction

from cleanup_project.base import sqlfiles
from cleanup_project.base.arrays import array, copy_in
from cleanup_project.base.canonical import Written
from ledger import notices, outcomes
from ledger.batch import Batch, Target
from ledger.outcomes import Verdict
from ledger.receipts import EVENT, Issued, Issuer
from ledger.states import CommandState
from retention.models import Bucket
from webhooks.outbox import Notice, ObjectName, emit, event_id

# What settling copies in, and the types of its columns.
RECEIPTS: Final = {
    "command_id": "int8", "command_key": "varchar", "tenant_id": "int8", "run_id": "int8", "policy_id": "int8",
    "bucket_id": "int8", "outcome": "varchar", "event_id": "varchar", "target_count": "int4", "bytes": "int8",
    "body": "bytea", "digest": "bytea", "issued_at": "timestamptz",
}  # fmt: skip
LOCATORS: Final = {"command_id": "int8", "ordinal": "int4", "bucket": "varchar", "key": "text", "version_id": "text"}

LATE: Final = ("id", "token", "late", "cycle", "outcome", "charged", "failure_class", "detail")  # sql/late.sql

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Settled:
    """How many commands were settled, how many of them are gone, and how many results came too late to count."""

    commands: int
    gone: int
    late: int


def settle(batch: Batch, verdicts: Sequence[Verdict]) -> Settled:
    """Write what became of a batch. Only results under a token that is still the command's own count.

    May be called again after a COMMIT whose answer was lost: what is settled already stays as it is.
    """
    if not verdicts:
        return Settled(0, 0, 0)
    with transaction.atomic():
        gone = [each for each in verdicts if each.state is CommandState.DELETED]
        lock_versions(gone)
        now, mine = outcomes.lock([each.command for each in verdicts])
        ours = [each for each in verdicts if each.command.id in mine]
        late = [each for each in verdicts if each.command.id not in mine]
        failures = outcomes.write(batch, [each for each in ours if each.state is not CommandState.DELETED])
        note_partly_gone(ours)
        gone = [each for each in ours if each.state is CommandState.DELETED]
        if gone:
            confirm(batch, gone, now, failures)
        else:
            notices.tell(batch.tenant_id, failures)
        late = record_late(batch, late)
        outcomes.tally_health(batch, ours)
    if late:
        log.warning("results under lost leases", commands=len(late))
    return Settled(len(ours), len(gone), len(late))


def lock_versions(gone: Sequence[Verdict]) -> None:
    ids = [target.object_version_id for each in gone for target in each.command.targets]
    if ids:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT FROM retention_objectversion WHERE id = ANY(%s::bigint[]) ORDER BY id FOR NO KEY UPDATE",
                [array(ids)],
            )


def confirm(batch: Batch, gone: Sequence[Verdict], now: datetime, before: Sequence[Notice]) -> None:
    """Receipts, events, states and the catalogue for commands whose targets are all gone.

    `before`: what else the transaction has to tell, since it emits once; told first.
    """
    buckets = dict(Bucket.objects.values_list("pk", "name"))
    issuer = Issuer(batch.tenant_id, now, batch.worker, [each.command for each in gone], buckets)
    told_as = [event_id(EVENT, each.command.key) for each in gone]
    with ThreadPoolExecutor(1) as beside:  # while the database writes, of which receipts and notices say nothing
        making = beside.submit(make, issuer, gone, told_as)
        write_gone(batch, gone, told_as, now)
        issued, told = making.result()
    emit(issuer.tenant, [*before, *told], at=now)
    write_receipts(batch, issued, issuer, now)
    outcomes.tally(gone)


def make(issuer: Issuer, gone: Sequence[Verdict], told_as: Sequence[str]) -> tuple[list[Issued], list[Notice]]:
    """The receipts, and the notices that tell of them under these ids; asks the database nothing."""
    issued = [issuer.issue(each, told) for each, told in zip(gone, told_as, strict=True)]
    return issued, [notice(each, issuer) for each in issued]


def write_gone(batch: Batch, gone: Sequence[Verdict], told_as: Sequence[str], now: datetime) -> None:
    sqlfiles.rows(sqlfiles.read(__file__, "settle.sql"), columns(batch, gone, told_as, now))


def notice(issued: Issued, issuer: Issuer) -> Notice:
    """The event of one deletion: identifiers, digest and outcome; object keys only where an endpoint asks for them."""
    command = issued.command
    revision = issuer.revisions[command.revision_id]
    size = sum(target.size for target in command.targets)
    data = Written(
        f'{{"bytes":{size},"command_key":{quoted(command.key)},"outcome":"{issued.outcome}",'
        f'"policy":"{revision.policy.code}","receipt_sha256":"{issued.digest.hex()}","revision":{revision.number},'
        f'"run":{quoted(issuer.runs[command.run_id].key)},"targets":{len(command.targets)}}}'
    )
    return Notice(
        type=EVENT, subject=command.asset, name=command.key, data=data, command_key=command.key,
        objects=lambda: [
            ObjectName(issuer.buckets[each.bucket_id], each.ref.key, each.ref.version_id) for each in command.targets
        ],
    )  # fmt: skip


def columns(batch: Batch, gone: Sequence[Verdict], told_as: Sequence[str], now: datetime) -> dict[str, Any]:
    """The parameters of `sql/settle.sql`. Of the targets, those whose absence this claim saw: text, not a datetime."""
    targets = [target for each in gone for target in each.command.targets]
    seen = [target for target in targets if isinstance(target.gone_at, str)]
    return {
        "id": array(each.command.id for each in gone),
        "token": array(each.command.token for each in gone),
        "cycle": array(each.command.cycle for each in gone),
        "outcome": array(str(each.outcome) for each in gone),
        "event_id": array(told_as),
        "versions": array(target.object_version_id for target in targets),
        "target": array(target.id for target in seen),
        "gone_at": array(str(target.gone_at) for target in seen),
        "claimed_at": batch.claimed_at,
        "worker": batch.worker,
        "now": now,
    }


def note_partly_gone(verdicts: Sequence[Verdict]) -> None:
    """Keep the evidence of targets that went while others of their command did not."""
    parts: list[Target] = [
        target
        for each in verdicts
        if each.state is not CommandState.DELETED
        for target in each.command.targets
        if isinstance(target.gone_at, str)
    ]
    if not parts:
        return
    with connection.cursor() as cursor:
        cursor.executemany(
            "UPDATE ledger_commandtarget SET gone_at = %s, evidence = %s WHERE id = %s AND gone_at IS NULL",
            [(target.gone_at, json.dumps(target.evidence), target.id) for target in parts],
        )


def write_receipts(batch: Batch, issued: Sequence[Issued], issuer: Issuer, now: datetime) -> None:
    """Copy the receipts in, and apart from them the clear names behind their commitments."""
    receipts = (
        (
            each.command.id, each.command.key, batch.tenant_id, each.command.run_id, each.command.policy_id, batch.bucket_id,
            each.outcome, each.event_id, len(each.command.targets), sum(target.size for target in each.command.targets),
            each.body, each.digest, now,
        )
        for each in issued
    )  # fmt: skip
    locators = (
        (each.command.id, target.ordinal, issuer.buckets[target.bucket_id], target.ref.key, target.ref.version_id)
        for each in issued
        for target in each.command.targets
    )
    with connection.cursor() as cursor:
        copy_in(cursor, "ledger_receipt", RECEIPTS, receipts)
        copy_in(cursor, "ledger_receiptlocator", LOCATORS, locators)


def record_late(batch: Batch, late: Sequence[Verdict]) -> list[Verdict]:
    """Results under lost tokens decide nothing; where something had been sent, they ask for a look.

    An outcome of the same token that is not the loss of its lease is our own, of a COMMIT whose answer was lost.
    """
    sent = [each for each in late if each.sent]
    if not sent:
        return []
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "late.sql"),
            dict(zip(LATE, outcomes.attempt_columns(sent, late=True), strict=True))
            | {
                "wait": [each.inspect_in or 0.0 for each in sent],
                "claimed_at": batch.claimed_at,
                "worker": batch.worker,
            },
        )
        told = {row[0] for row in cursor.fetchall()}
    return [each for each in sent if each.command.id in told]
