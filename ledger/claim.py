"""Claim due commands of one bucket under a lease: the only SKIP LOCKED of commands.

One transaction of at most CLAIM_SECONDS: the tenant's hold lock, shared; the epoch; the claim; then, as a later statement,
what stands in the way now. What may not go on is parked at once, under the same lock.
"""

import json
import os
import socket
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from math import inf
from typing import Any, Final

from django.db import connection, transaction

from cleanup_project.base import canonical, sqlfiles
from cleanup_project.base.arrays import array
from ledger import keeping, notices
from ledger.batch import Batch, Claimed, Target
from ledger.failures import MAX_LEASE_LOSSES, SUSPECT_AFTER, Trouble
from ledger.outcomes import Verdict, lock, write
from retention import control, holds
from retention.control import Stopped
from retention.models import PolicyRevision, RetentionPolicy
from retention.storage import VersionRef

BATCH: Final = 1000
CLAIM_SECONDS: Final = 3
SEND_SECONDS: Final = 60  # from the claim: nothing is sent under its token later
DELETE_SECONDS: Final = 60  # the longest that one delete call may take
SPARE_SECONDS: Final = 120
OLDEST_EVERY: Final = 10  # every so many turns the oldest due priority comes first, whatever it is
NOT_NOW: Final = "Stopped, paused, suspended, or outside of its window."
WAIT_FOR_OLDER: Final = (2.0, 60.0)  # seconds at least and at most, until older versions are due
WAIT_ELSEWHERE: Final = 60.0  # seconds until a command is looked at again of which another bucket is stopped


@cache
def worker_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"[:100]


def next_turn(bucket_id: int, idle: Collection[int] = ()) -> tuple[int, list[int]] | None:
    """The tenant whose turn it is in the bucket, and the priorities in the order in which to take them; None: nothing is due.

    The most urgent priority that is due comes first, then who has waited longest. `idle` tenants have no turn.
    """
    parameters: dict[str, Any] = {"bucket": bucket_id, "oldest_every": OLDEST_EVERY, "idle": list(idle)}
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "turn.sql"), parameters)
        row = cursor.fetchone()
    return (row[0], list(row[1])) if row else None


def claim(bucket_id: int, tenant_id: int, priorities: Sequence[int], settle_seconds: int, n: int = BATCH) -> Batch:
    """Claim up to `n` commands. What is in the way of some is written at once; the batch holds those that may go on."""
    begun = time.monotonic()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('statement_timeout', %s, true), set_config('idle_in_transaction_session_timeout', %s, true),"
            " now()",
            [f"{CLAIM_SECONDS}s", f"{CLAIM_SECONDS}s"],
        )
        now: datetime = cursor.fetchone()[2]
        holds.share_lock(tenant_id)
        epoch, stopped = control.read(tenant_id)
        batch = Batch(tenant_id, bucket_id, epoch, now, begun + SEND_SECONDS, worker_name(), [], 0)
        lease = SEND_SECONDS + DELETE_SECONDS + settle_seconds + SPARE_SECONDS
        refused = refusing(tenant_id, stopped, now)
        commands = list(take(bucket_id, tenant_id, priorities, lease, n, refused))
        batch.claimed = len(commands)
        if commands:
            take_over(commands, batch.worker)
            going, verdicts = sift(commands, tenant_id, refused)
            waiting = [each for each in going if not each.inspect_due and refused.refuses(each)]
            told = write(batch, verdicts + [Verdict.later(each, refused.seconds(each)) for each in waiting])
            notices.tell(tenant_id, told)
            left = {each.id for each in waiting}
            batch.commands = [each for each in going if each.id not in left]
            batch.send_until = min(batch.send_until, begun + refused.seconds_open(batch.commands, now))
    return batch


def take(
    bucket_id: int, tenant_id: int, priorities: Sequence[int], lease: int, n: int, refused: "Refusing"
) -> Iterator[Claimed]:
    """Lease commands; only where nothing else is due, one of those that have lost their worker before, alone.

    Of what is refused, those of which an earlier worker may have sent a request, so that somebody looks.
    """
    parameters: dict[str, Any] = {
        "bucket": bucket_id,
        "tenant": tenant_id,
        "order": array(priorities),
        "lease": lease,
        "paused": array(refused.runs),
        "suspended": array(refused.policies | refused.stopped.policies),
        "shut": array(refused.revisions),
        "stopped": refused.stopped.whole or bucket_id in refused.stopped.buckets,
        "suspect_after": SUSPECT_AFTER,
    }
    for suspects, limit in ((False, n), (True, 1)):
        rows = sqlfiles.rows(sqlfiles.read(__file__, "claim.sql"), parameters | {"suspects": suspects, "n": limit})
        if rows:
            yield from (Claimed(*row) for row in rows)
            return


def take_over(commands: Sequence[Claimed], worker: str) -> None:
    """Record the losses of leases that had run out, and which of them may have been executed."""
    taken = {each.id: each for each in commands if each.taken_over}
    if not taken:
        return
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "take_over.sql"), {"ids": list(taken), "worker": worker})
        for pk, inspect_due in cursor.fetchall():
            taken[pk].inspect_due = inspect_due


def check(ids: Sequence[int], tenant_id: int) -> Mapping[int, list[tuple[Any, ...]]]:
    """The rows of `sql/claim_check.sql`, by command. A later statement than the hold lock, so that it sees every hold."""
    found: dict[int, list[tuple[Any, ...]]] = {pk: [] for pk in ids}
    parameters = {"ids": array(ids), "tenant": tenant_id, "instant": canonical.SQL_INSTANT}
    for row in sqlfiles.rows(sqlfiles.read(__file__, "claim_check.sql"), parameters):
        found[row[0]].append(row)
    return found


def sift(commands: Sequence[Claimed], tenant_id: int, refused: "Refusing") -> tuple[list[Claimed], list[Verdict]]:
    """The commands that may go on, and the verdicts on those that may not. What is refused only waits: it goes on here."""
    checked = check([each.id for each in commands], tenant_id)
    for command in commands:
        command.targets = command.targets or [target_of(row) for row in checked[command.id]]
    deleting = [each for each in commands if not each.inspect_due and not refused.refuses(each)]
    kept = keeping.kept(deleting, tenant_id)
    going, verdicts = list[Claimed](), list[Verdict]()
    for command in commands:
        facts = [row[-4:] for row in checked[command.id]]
        verdict = None if command.inspect_due else obstacle(command, facts, kept.get(command.id))
        if verdict is None:
            going.append(command)
        else:
            verdicts.append(verdict)
    return going, verdicts


def target_of(row: tuple[Any, ...]) -> Target:
    _, pk, ordinal, version, bucket, key, version_id, etag, size, role, stored_at, *seen = row[:-4]
    listed_at, gone_at, evidence, current = seen
    told = json.loads(evidence) if evidence else None
    ref = VersionRef(key, version_id)
    return Target(pk, ordinal, version, bucket, ref, etag, size, role, stored_at, listed_at, gone_at, told, current)


def obstacle(command: Claimed, facts: Sequence[Sequence[Any]], kept: str | None) -> Verdict | None:
    """What keeps a claimed command from being executed now. Facts of each target: hold, enforced, superseded, waits."""
    held = [hold for hold, *_ in facts if hold is not None]
    if held:
        return Verdict.held(command, hold_id=min(held), detail="A legal hold covers it.")
    if any(superseded for *_, superseded, _waits in facts):
        return Verdict.withdrawn(command, "A newer revision of its policy governs it now.")
    if kept is not None:
        return Verdict.withdrawn(command, kept)
    if not all(enforced for _hold, enforced, *_ in facts):
        return Verdict.withdrawn(command, "Enforcement is off where one of its targets is.")
    if command.lease_losses >= MAX_LEASE_LOSSES:
        return Verdict.dead(command, Trouble.WORKER_LOST, f"{command.lease_losses} workers ended while they had it.")
    if any(waits for *_, waits in facts):
        return older_version(command)
    return None


def older_version(command: Claimed) -> Verdict:
    """Wait while other commands may still destroy the older versions that are in its way; else a person must decide."""
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "older_versions.sql"), {"command": command.id})
        on_their_way, seconds = cursor.fetchone()
    shortest, longest = WAIT_FOR_OLDER
    if on_their_way:
        return Verdict.later(command, min(max(seconds, shortest), longest))
    return Verdict.dead(
        command, Trouble.OLDER_VERSION, "An older version of its key is present, and not on its way out."
    )


def recheck(batch: Batch, commands: Sequence[Claimed]) -> list[Claimed]:
    """After the epoch has moved: the commands that may still go on. The rest is parked or given back; nobody is charged."""
    with transaction.atomic():
        holds.share_lock(batch.tenant_id)
        batch.epoch, stopped = control.read(batch.tenant_id)
        now, mine = lock(commands)
        refused = refusing(batch.tenant_id, stopped, now)
        ours = [each for each in commands if each.id in mine]
        going, verdicts = sift(ours, batch.tenant_id, refused)
        kept = [each for each in going if not refused.refuses(each)]
        verdicts = [
            each if each.outcome else Verdict.not_sent(each.command, "Not now.", each.due_in or 0.0)
            for each in verdicts
        ]
        left = {each.id for each in kept}
        verdicts += [Verdict.not_sent(each, NOT_NOW) for each in going if each.id not in left]
        notices.tell(batch.tenant_id, write(batch, verdicts))
    return kept


@dataclass(frozen=True, slots=True)
class Refusing:
    """Whose commands wait now, although they are due: those of runs that are paused, tripped or cancelled, of policies that
    are suspended, of revisions whose execution window is closed, and what is stopped. `closing`: when open windows close.
    """

    runs: frozenset[int]
    policies: frozenset[int]
    revisions: frozenset[int]
    closing: Mapping[int, datetime]
    stopped: Stopped

    def refuses(self, command: Claimed) -> bool:
        waits = command.run_id in self.runs or command.policy_id in self.policies
        return waits or command.revision_id in self.revisions or self.stops(command)

    def stops(self, command: Claimed) -> bool:
        """A command is stopped with any bucket that one of its targets is still in."""
        if not self.stopped:  # as for every command of nearly every batch
            return False
        buckets = {target.bucket_id for target in command.targets if not target.gone_at}
        return self.stopped.covers(command.policy_id, buckets)

    def seconds(self, command: Claimed) -> float:
        """How long a refused command is put off: not at all where a claim finds out without taking it."""
        return WAIT_ELSEWHERE if self.stops(command) else 0.0

    def seconds_open(self, commands: Sequence[Claimed], now: datetime) -> float:
        """Seconds until the first window of the commands closes."""
        ends = [self.closing[each.revision_id] for each in commands if each.revision_id in self.closing]
        return (min(ends) - now).total_seconds() if ends else inf


def refusing(tenant_id: int, stopped: Stopped, now: datetime) -> Refusing:
    """What of a tenant may not be executed now, although it is due."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM ledger_cleanuprun r WHERE tenant_id = %s AND (state IN ('paused', 'tripped') OR "
            "state = 'cancelled' AND EXISTS (SELECT FROM ledger_cleanupcommand c WHERE c.run_id = r.id AND "
            "c.state = 'ready'))",
            [tenant_id],
        )
        runs = frozenset(row[0] for row in cursor.fetchall())
    suspended = RetentionPolicy.objects.filter(tenant_id=tenant_id, suspended_at__isnull=False)
    ends = {each.pk: each.window.closes(now) for each in PolicyRevision.objects.with_window(tenant_id) if each.window}
    return Refusing(
        runs=runs,
        policies=frozenset(suspended.values_list("pk", flat=True)),
        revisions=frozenset(pk for pk, end in ends.items() if end is None),
        closing={pk: end for pk, end in ends.items() if end is not None},
        stopped=stopped,
    )
