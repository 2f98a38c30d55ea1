"""Verdicts on claimed commands, and the one writer of all of them but success.

`write` runs inside the caller's transaction, which holds the commands' rows under their tokens.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

from django.db import connection

from cleanup_project.base import sqlfiles
from cleanup_project.base.arrays import array
from ledger import notices, retry
from ledger.batch import Batch, Claimed
from ledger.failures import BLAMELESS, Then, rule_of
from ledger.models import Attempt, CleanupCommand, OutcomeTally, RunTally
from ledger.states import CommandState
from retention.storage import Failure, FailureClass
from webhooks.outbox import Notice

Outcome = Attempt.Outcome
CODE_LIMIT: Final = 64


@dataclass(slots=True)
class Verdict:
    """What became of one claimed command. Build it with the constructors.

    `outcome` None: nothing worth a line happened, the lease is given back. `due_in`, `inspect_in`: seconds from now.
    `sent`: a request of this token may have reached the store. `failure`: what the store refused, where one did.
    """

    command: Claimed
    outcome: Attempt.Outcome | None
    state: CommandState = CommandState.READY
    charged: bool = False
    failure_class: str = ""
    detail: str = ""
    due_in: float | None = None
    inspect_in: float | None = None
    sent: bool = False
    held_by: str = ""
    held_until: datetime | None = None
    hold_id: int | None = None
    reason: str = ""
    failure: Failure | None = None

    @property
    def is_failure(self) -> bool:
        """Whether it counts against the health of its run and bucket: it ended in quarantine by what the store answered.

        What is tried again does not count yet, so that an outage which ends by itself needs nobody to re-arm anything.
        """
        return self.state == CommandState.DEAD and self.failure_class not in BLAMELESS

    @property
    def is_tried(self) -> bool:
        """Whether it counts at all: an answer of the store decided it."""
        return self.is_failure or self.outcome in (Outcome.DELETED, Outcome.BY_ABSENCE)

    @classmethod
    def gone(cls, command: Claimed, outcome: Attempt.Outcome, *, sent: bool) -> Self:
        """Every target is confirmed gone; the evidence stands on the targets."""
        return cls(command, outcome, CommandState.DELETED, sent=sent)

    @classmethod
    def later(cls, command: Claimed, seconds: float) -> Self:
        """Not now, and no fault of anybody's. A look that is owed stays owed."""
        return cls(command, None, due_in=seconds, inspect_in=seconds if command.inspect_due else None)

    @classmethod
    def not_sent(cls, command: Claimed, detail: str, seconds: float = 0.0, *, sent: bool = False) -> Self:
        """A request was committed, and then not sent; `sent`: that for another target of the command was."""
        return cls(command, Outcome.NOT_SENT, detail=detail, due_in=seconds, sent=sent)

    @classmethod
    def held(cls, command: Claimed, *, hold_id: int, detail: str) -> Self:
        by = CleanupCommand.HeldBy.US
        return cls(command, Outcome.HELD, CommandState.HELD, held_by=by, hold_id=hold_id, detail=detail)

    @classmethod
    def withdrawn(cls, command: Claimed, reason: str) -> Self:
        return cls(command, Outcome.WITHDRAWN, CommandState.WITHDRAWN, reason=reason, detail=reason)

    @classmethod
    def dead(
        cls, command: Claimed, failure_class: str, detail: str, *, sent: bool = False, failure: Failure | None = None
    ) -> Self:
        return cls(
            command,
            Outcome.FAILED,
            CommandState.DEAD,
            charged=True,
            failure_class=failure_class,
            detail=detail,
            sent=sent,
            failure=failure,
        )

    @classmethod
    def present(cls, command: Claimed) -> Self:
        """Inspected after a request in doubt: still there, so it is tried again, while it has attempts left."""
        rule = rule_of(FailureClass.TRANSIENT)
        if retry.exhausted(rule, command.attempts):
            detail = f"Still there, as was seen after {command.attempts} requests of which nobody knew the end."
            verdict = cls.dead(command, FailureClass.TRANSIENT, detail)
            verdict.charged = False  # the look is no attempt
            return verdict
        return cls(command, Outcome.PRESENT, due_in=retry.delay(rule, command.attempts))

    @classmethod
    def ambiguous(cls, command: Claimed, failure_class: str, detail: str, settle_seconds: float) -> Self:
        """May have been executed: only an inspection after the settle time leads on."""
        charged = rule_of(failure_class).charged
        return cls(
            command,
            Outcome.AMBIGUOUS,
            charged=charged,
            failure_class=failure_class,
            detail=detail,
            due_in=settle_seconds,
            inspect_in=settle_seconds,
            sent=True,
        )

    @classmethod
    def unseen(cls, command: Claimed, failure_class: str, detail: str, settle_seconds: float) -> Self:
        """The look that is owed saw nothing: it stays owed, however often. Nothing is parked while it is in doubt."""
        rule = rule_of(failure_class)
        waiting = max(settle_seconds, retry.delay(rule, command.attempts + 1))
        return cls(
            command, Outcome.AMBIGUOUS, charged=rule.charged, failure_class=failure_class, detail=detail, due_in=waiting,
            inspect_in=waiting,
        )  # fmt: skip

    @classmethod
    def failed(
        cls,
        command: Claimed,
        failure_class: str,
        detail: str,
        *,
        sent: bool,
        failure: Failure | None = None,
        retry_after: float | None = None,
        held_until: datetime | None = None,
    ) -> Self:
        """As the rule of the class says: again later, held, or into quarantine."""
        rule = rule_of(failure_class)
        attempts = command.attempts + rule.charged
        if rule.then is Then.HOLD:
            by = CleanupCommand.HeldBy.STORE
            state = CommandState.HELD
            return cls(
                command, Outcome.FAILED, state, failure_class=failure_class, detail=detail, sent=sent, held_by=by,
                held_until=held_until,
            )  # fmt: skip
        if retry.exhausted(rule, attempts):
            return cls.dead(command, failure_class, detail, sent=sent, failure=failure)
        waiting = retry.delay(rule, attempts, retry_after)
        return cls(
            command, Outcome.FAILED, charged=rule.charged, failure_class=failure_class, detail=detail, due_in=waiting,
            sent=sent,
        )  # fmt: skip


def lock(commands: Sequence[Claimed]) -> tuple[datetime, set[int]]:
    """Lock, in order of id, the commands that still carry our tokens; returns the database's time and their ids.

    Expiry alone does not matter: the token decides.
    """
    tokens = {each.id: each.token for each in commands}
    with connection.cursor() as cursor:
        # Tokens are compared here: the planner takes leased rows for rare ones, and would join them by nested loops.
        cursor.execute(
            "SELECT id, lease_token, state, lease_until IS NOT NULL FROM ledger_cleanupcommand WHERE id = ANY (%s::bigint[]) "
            "ORDER BY id FOR NO KEY UPDATE",
            [array(tokens)],
        )
        rows = cursor.fetchall()
        cursor.execute("SELECT statement_timestamp()")
        (now,) = cursor.fetchone()
    mine = {pk for pk, token, state, leased in rows if tokens[pk] == token and state == CommandState.READY and leased}
    return now, mine


def write(batch: Batch, verdicts: Sequence[Verdict]) -> list[Notice]:
    """Write every verdict but success: attempts, commands, and for what is parked its targets, quarantine and tallies.

    Returns what the caller must emit, once in its transaction.
    """
    if not verdicts:
        return []
    record_attempts(batch, verdicts)
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "outcome.sql"), columns(verdicts))
    parked = [each for each in verdicts if each.state is not CommandState.READY]
    return park(parked) if parked else []


def record_attempts(batch: Batch, verdicts: Sequence[Verdict]) -> None:
    told = [each for each in verdicts if each.outcome is not None]
    if told:
        with connection.cursor() as cursor:
            cursor.execute(
                """
                INSERT INTO ledger_attempt (
                    command_id, token, late, cycle, outcome, charged, failure_class, detail, claimed_at, settled_at, worker
                )
                SELECT u.*, %s, statement_timestamp(), %s
                FROM unnest(%s::bigint[], %s::bigint[], %s::boolean[], %s::smallint[], %s::text[], %s::boolean[],
                    %s::text[], %s::text[]) AS u
                """,
                [batch.claimed_at, batch.worker, *attempt_columns(told, late=False)],
            )


def attempt_columns(verdicts: Sequence[Verdict], *, late: bool) -> list[list[Any]]:
    return [
        [each.command.id for each in verdicts],
        [each.command.token for each in verdicts],
        [late] * len(verdicts),
        [each.command.cycle for each in verdicts],
        [str(each.outcome) for each in verdicts],
        [each.charged and not late for each in verdicts],
        [each.failure_class for each in verdicts],
        [each.detail for each in verdicts],
    ]


def columns(verdicts: Sequence[Verdict]) -> dict[str, list[Any]]:
    """The parameters of `sql/outcome.sql`."""
    fields = ["state", "charged", "failure_class", "due_in", "inspect_in", "held_by", "held_until", "hold_id", "reason"]
    arrays: dict[str, list[Any]] = {name: [getattr(each, name) for each in verdicts] for name in fields}
    arrays["id"] = [each.command.id for each in verdicts]
    arrays["seen"] = [each.command.inspect_due for each in verdicts]
    return arrays


def park(verdicts: Sequence[Verdict]) -> list[Notice]:
    """The rest of what follows for held, dead and withdrawn commands; returns what there is to tell."""
    entries = list[int]()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ledger_commandtarget SET active = false WHERE command_id = ANY (%s::bigint[]) AND active",
            [[each.command.id for each in verdicts]],
        )
        dead = [each for each in verdicts if each.state is CommandState.DEAD]
        if dead:
            cursor.execute(
                sqlfiles.read(__file__, "quarantine.sql"),
                {
                    "id": [each.command.id for each in dead],
                    "error": [each.detail for each in dead],
                    "next_action": [rule_of(each.failure_class).next_action for each in dead],
                    "code": [code_of(each.failure) for each in dead],
                    "status": [each.failure.http_status if each.failure else None for each in dead],
                },
            )
            entries = [pk for (pk,) in cursor.fetchall()]
    tally(verdicts)
    return notices.of_quarantine(notices.ENTERED, entries) if entries else []


def code_of(failure: Failure | None) -> str:
    """The store's own name for it, as the quarantine entry has room for it. A store may answer anything."""
    return failure.code[:CODE_LIMIT].replace("\x00", "\N{SYMBOL FOR NULL}") if failure else ""


def tally(verdicts: Sequence[Verdict]) -> None:
    """Add to the runs' counts, as rows of their own: nobody waits for anybody."""
    counts: Counter[tuple[int, str]] = Counter()
    for each in verdicts:
        outcome = each.outcome if each.state is CommandState.DELETED else each.state
        counts[each.command.run_id, str(outcome)] += 1
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO ledger_runtally (run_id, outcome, commands) VALUES (%s, %s, %s)",
            [(run, outcome, number) for (run, outcome), number in counts.items()],
        )


def tally_health(batch: Batch, verdicts: Sequence[Verdict]) -> None:
    """Tell the circuit breakers what was tried and what of it failed, as rows of their own."""
    tried = Counter(each.command.run_id for each in verdicts if each.is_tried)
    failed = Counter(each.command.run_id for each in verdicts if each.is_failure)
    OutcomeTally.objects.bulk_create(
        OutcomeTally(run_id=run, bucket_id=batch.bucket_id, tried=number, failed=failed[run])
        for run, number in tried.items()
    )


def tally_back(counts: Mapping[tuple[int, str], int]) -> None:
    """Commands that were counted as parked under their runs, by (run, state), are parked no longer."""
    RunTally.objects.bulk_create(
        RunTally(run_id=run, outcome=state, commands=-number) for (run, state), number in sorted(counts.items())
    )
