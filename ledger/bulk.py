"""Replay or close many quarantine entries: bulk jobs with an outcome in words for every entry.

What a job is about are entries, not commands: one that was resolved since, however that was, is left as it is, even if its
command came back to quarantine in a later cycle.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import connection, transaction
from django.db.models import QuerySet

from cleanup_project.base import jobs, paginator, tenancy
from cleanup_project.base.canonical import instant
from cleanup_project.base.jobs import Outcome
from cleanup_project.base.models import BulkJob, User
from ledger import quarantine, replayable
from ledger.causes import Cause
from ledger.exceptions import AlreadyDecided, LedgerError
from ledger.models import DeadLetter

REPLAY: Final = "replay"
CLOSE: Final = "close"
RIGHTS: Final = {REPLAY: "base.operate", CLOSE: "base.review_quarantine"}
COUNT_BUDGET_MS: Final = 5000
SAMPLE: Final = 50  # entries of which a confirmation says what would be refused now

# Outcomes; the last three left everything as it was.
REPLAYED: Final = "replayed"
CLOSED: Final = "closed"
REFUSED: Final = "refused"
RESOLVED: Final = "resolved_before"
NOT_YOURS: Final = "not_yours"
READY_AGAIN: Final = "Ready again, in its next cycle: it is tried when its bucket's next drain takes it."
STAYS: Final = "Closed without retry; its object stays where it is."


@dataclass(frozen=True, slots=True)
class Counted:
    """How many entries are chosen, by cause; `whole` where none was left uncounted."""

    by_cause: Sequence[tuple[Cause, int]]
    total: int
    whole: bool

    @property
    def lanes(self) -> frozenset[str]:
        """At most one job of a kind works on the entries of one tenant and class."""
        return frozenset(f"{cause.tenant_id}/{cause.failure_class}" for cause, _ in self.by_cause)


class Sampled(NamedTuple):
    """What a replay of some of the chosen would meet now. `reasons`: (words, how many of the sample)."""

    looked_at: int
    reasons: Sequence[tuple[str, int]]


def mine(rows: QuerySet[DeadLetter], by: User) -> QuerySet[DeadLetter]:
    """Of these, what is open and of this person's tenants."""
    return tenancy.scoped(rows.filter(resolved_at=None), by, "tenant__code")


def count(rows: QuerySet[DeadLetter]) -> Counted:
    """Count up to one job's worth. Raises OperationalError where even that takes too long."""
    try:
        sql, parameters = rows.order_by().values_list(*Cause._fields).query.sql_with_params()
    except EmptyResultSet:  # of no tenant that there is
        return Counted((), 0, whole=True)
    columns = ", ".join(Cause._fields)
    with transaction.atomic(), paginator.limited(COUNT_BUDGET_MS), connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {columns}, count(*) FROM ({sql} LIMIT %s) AS chosen ({columns}) "  # noqa: S608 - our own and Django's
            f"GROUP BY {columns} ORDER BY {columns}",
            [*parameters, jobs.MOST + 1],
        )
        found = [(Cause(*cause), number) for *cause, number in cursor.fetchall()]
    total = sum(number for _, number in found)
    return Counted(found, total, total <= jobs.MOST)


def sample(rows: QuerySet[DeadLetter]) -> Sampled:
    """Judge a random few of the chosen as a replay would, without locks. Raises OperationalError as `count`."""
    with transaction.atomic(), paginator.limited(COUNT_BUDGET_MS):
        # Numbers alone are shuffled: whole rows of a hundred thousand would not fit into memory.
        ids = list(rows.order_by("?").values_list("pk", flat=True)[:SAMPLE])
        found = [entry.command for entry in DeadLetter.objects.filter(pk__in=ids).select_related("command")]
        told: dict[str, int] = {}
        for _case, refusal in replayable.refusals(replayable.cases_of(found)):
            if refusal is not None:
                told[str(refusal)] = told.get(str(refusal), 0) + 1
    return Sampled(len(found), sorted(told.items(), key=lambda each: (-each[1], each[0])))


def replay_all(
    *,
    rows: QuerySet[DeadLetter],
    selection: str,
    expected: int,
    token: UUID,
    by: User,
    reason: str,
    repair: str = "",
    rate: int = jobs.RATE,
) -> BulkJob:
    """A bulk job that replays those of the rows that are open and this person's; `expected` is how many they saw.

    Frozen now; the same token again returns the job that it made, and counts nothing. Raises JobRefused as `jobs.create`,
    also where a replay of the same tenant and class is under way.
    """
    if earlier := jobs.made(REPLAY, token, by=by):
        return earlier
    chosen = mine(rows, by)
    order = jobs.Order(
        chosen, selection, expected, reason, token, rate, details={"repair": repair}, lanes=count(chosen).lanes
    )
    return jobs.create(REPLAY, order, by=by)


def close_all(
    *,
    rows: QuerySet[DeadLetter],
    selection: str,
    expected: int,
    token: UUID,
    by: User,
    reason: str,
    rate: int = jobs.RATE,
) -> BulkJob:
    """A bulk job that closes them without retry; as `replay_all`."""
    if earlier := jobs.made(CLOSE, token, by=by):
        return earlier
    chosen = mine(rows, by)
    return jobs.create(
        CLOSE, jobs.Order(chosen, selection, expected, reason, token, rate, lanes=count(chosen).lanes), by=by
    )


def carry_out_replay(ids: Sequence[int], by: User, reason: str, *, repair: str = "") -> dict[int, Outcome]:
    """What a job does to its next entries: those that may be are replayed together, each other has its refusal."""
    commands, told = open_ones(ids, by)
    refused = quarantine.replay_each(commands.values(), by, reason, repair, entries=commands)
    return told | {pk: replay_outcome(refused[command]) for pk, command in commands.items()}


def replay_outcome(refusal: LedgerError | None) -> Outcome:
    if refusal is None:
        return Outcome(REPLAYED, READY_AGAIN)
    return Outcome(RESOLVED if isinstance(refusal, AlreadyDecided) else REFUSED, str(refusal))


def carry_out_close(ids: Sequence[int], by: User, reason: str) -> dict[int, Outcome]:
    commands, told = open_ones(ids, by)
    closed = quarantine.close_each(commands.values(), by, reason, entries=commands)
    _none, late = open_ones(commands.keys() - {each.pk for each in closed}, by)
    return told | late | {each.pk: Outcome(CLOSED, STAYS) for each in closed}


def open_ones(ids: Collection[int], by: User) -> tuple[dict[int, int], dict[int, Outcome]]:
    """The command of each entry that is open, and what is to be said of the others. Sure only under the commands' locks."""
    told = {pk: Outcome(NOT_YOURS, f"It is of no tenant of {by}'s.") for pk in ids}
    commands = dict[int, int]()
    rows: QuerySet[Any] = DeadLetter.objects.filter(pk__in=ids).select_related("resolved_by")
    for entry in tenancy.scoped(rows, by, "tenant__code"):
        if entry.resolved_at is None:
            commands[entry.pk] = entry.command_id
            del told[entry.pk]
        else:
            who = f" by {entry.resolved_by}" if entry.resolved_by else ""
            words = f"{entry.get_resolution_display()}{who} at {instant(entry.resolved_at)}, before its turn came."
            told[entry.pk] = Outcome(RESOLVED, words[0].upper() + words[1:])
    return commands, told


jobs.register(REPLAY, carry_out_replay, "Replay", RIGHTS[REPLAY], DeadLetter, {REPLAYED})
jobs.register(CLOSE, carry_out_close, "Closing", RIGHTS[CLOSE], DeadLetter, {CLOSED})
