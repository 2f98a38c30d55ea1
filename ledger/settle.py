"""Settle a batch in one transaction: outcomes, attempts, command states under the lease token, receipts, events, deliveries.

Locks in the order of the whole product: object versions, commands, targets, lanes, deliveries; tallies last.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from django.db import connection, transaction

from cleanup_project.base import queue, sqlfiles
from ledger import outcomes
from ledger.batch import Batch, Target
from ledger.outcomes import Verdict
from ledger.receipts import EVENT, Issued, Issuer
from ledger.states import CommandState
from retention.models import Bucket
from webhooks.outbox import Notice, emit, event_id

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
        outcomes.write(batch, [each for each in ours if each.state is not CommandState.DELETED])
        note_partly_gone(ours)
        gone = [each for each in ours if each.state is CommandState.DELETED]
        if gone:
            outcomes.record_attempts(batch, gone)
            confirm(batch, gone, now)
        late = record_late(batch, late)
    if late:
        log.warning("results under lost leases", commands=len(late))
    return Settled(len(ours), len(gone), len(late))


def lock_versions(gone: Sequence[Verdict]) -> None:
    ids = [target.object_version_id for each in gone for target in each.command.targets]
    if ids:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT FROM retention_objectversion WHERE id = ANY(%s::bigint[]) ORDER BY id FOR NO KEY UPDATE", [ids]
            )


def confirm(batch: Batch, gone: Sequence[Verdict], now: datetime) -> None:
    """Receipts, events, states and the catalogue for commands whose targets are all gone."""
    buckets = dict(Bucket.objects.values_list("pk", "name"))
    issuer = Issuer(batch.tenant_id, now, batch.worker, [each.command for each in gone], buckets)
    issued = [issuer.issue(each, event_id(EVENT, each.command.key)) for each in gone]
    mark_targets(gone)
    emit(issuer.tenant, [notice(each, issuer) for each in issued], at=now)
    write_receipts(batch, issued, issuer, now)
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "settle.sql"),
            {
                "id": [each.command.id for each in issued],
                "outcome": [each.outcome for each in issued],
                "event_id": [each.event_id for each in issued],
                "charged": [each.charged for each in gone],
                "versions": [target.object_version_id for each in gone for target in each.command.targets],
                "now": now,
            },
        )
    outcomes.tally(gone)
    queue.wake("webhooks.tasks.dispatch")


def notice(issued: Issued, issuer: Issuer) -> Notice:
    """The event of one deletion: identifiers, digest and outcome; no object key."""
    command = issued.command
    revision = issuer.revisions[command.revision_id]
    data: dict[str, Any] = {
        "bytes": sum(target.size for target in command.targets),
        "command_key": command.key,
        "outcome": issued.outcome,
        "policy": revision.policy.code,
        "receipt_sha256": issued.digest.hex(),
        "revision": revision.number,
        "run": issuer.runs[command.run_id].key,
        "targets": len(command.targets),
    }
    return Notice(type=EVENT, subject=command.asset, name=command.key, data=data, command_key=command.key)


def mark_targets(gone: Sequence[Verdict]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ledger_commandtarget t SET gone_at = u.at FROM unnest(%s::bigint[], %s::timestamptz[]) AS u (id, at) "
            "WHERE t.id = u.id AND t.id = ANY (%s::bigint[]) AND t.gone_at IS NULL",
            target_columns(gone),
        )


def target_columns(verdicts: Sequence[Verdict]) -> list[list[Any]]:
    """Only those whose absence this claim saw: text, where what was known before is a datetime of the database's."""
    targets = [target for each in verdicts for target in each.command.targets if isinstance(target.gone_at, str)]
    ids = [target.id for target in targets]
    return [ids, [target.gone_at for target in targets], ids]


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
    targets = [(each.command.id, target) for each in issued for target in each.command.targets]
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "receipts.sql"),
            {
                "tenant": batch.tenant_id,
                "now": now,
                "command": [each.command.id for each in issued],
                "key": [each.command.key for each in issued],
                "run": [each.command.run_id for each in issued],
                "outcome": [each.outcome for each in issued],
                "event_id": [each.event_id for each in issued],
                "targets": [len(each.command.targets) for each in issued],
                "bytes": [sum(target.size for target in each.command.targets) for each in issued],
                "body": [each.body for each in issued],
                "digest": [each.digest for each in issued],
                "of": [command for command, _ in targets],
                "ordinal": [target.ordinal for _, target in targets],
                "bucket": [issuer.buckets[target.bucket_id] for _, target in targets],
                "object_key": [target.ref.key for _, target in targets],
                "version_id": [target.ref.version_id for _, target in targets],
            },
        )


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
            | {"claimed_at": batch.claimed_at, "worker": batch.worker},
        )
        told = {row[0] for row in cursor.fetchall()}
    return [each for each in sent if each.command.id in told]


LATE = ("id", "token", "late", "cycle", "outcome", "charged", "failure_class", "detail")
