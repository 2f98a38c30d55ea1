"""From cron expressions to runs: each slot of each policy gets one answer, however often and however late anyone asks.

The database's clock decides what is due, and the slots that are recorded decide what is new. A tick that comes twice, at
the same time elsewhere, or not at all, changes when a slot is answered and nothing else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import structlog
from croniter import croniter
from django.db import transaction
from django.db.models import Count, Max, Min, OuterRef, QuerySet, Subquery
from django.db.models.functions import Now

from cleanup_project.base import clock, queue
from ledger import runs
from ledger.exceptions import LedgerError, RunOverlap
from ledger.models import CleanupRun, ScheduleSlot
from retention.models import RetentionPolicy

log = structlog.get_logger(__name__)

FREEZE: Final = "ledger.tasks.freeze"
GRACE: Final = timedelta(minutes=5)  # a slot answered within it is on time
OUTLOOK_OVER: Final = timedelta(days=30)
Outcome = ScheduleSlot.Outcome


def tick() -> list[CleanupRun]:
    """Answer every slot that is due, and open at most one run for each policy; returns the new runs."""
    opened = []
    for policy in RetentionPolicy.objects.filter(erasure=False).order_by("pk"):
        try:
            run = answer(policy)
        except Exception:  # one policy never stops the others; the next tick tries again
            log.exception("schedule not answered", policy=policy.code, schedule=policy.schedule)
        else:
            opened += [run] if run else []
    return opened


@dataclass(frozen=True, slots=True)
class Outlook:
    """What the schedule of one policy expects, beside what is on record."""

    policy: RetentionPolicy
    last: datetime | None  # the newest slot that was answered
    next: datetime | None  # None: none of its revisions has come into force
    overdue: bool  # a slot came more than GRACE ago, and nobody has answered it
    answers: dict[str, int]  # within OUTLOOK_OVER, by outcome


class Unanswered(NamedTuple):
    """A slot of a schedule that has come, and that nobody has answered."""

    policy: RetentionPolicy
    since: datetime


def unanswered(codes: Sequence[str] = ()) -> Unanswered | None:
    """The one that has waited the longest, of the tenants with these codes; none: of all. Two queries."""
    policies = RetentionPolicy.objects.filter(erasure=False)
    if codes:
        policies = policies.filter(tenant__code__in=codes)
    now = clock.now()
    waiting = [Unanswered(row, slot) for row in observed(policies) if (slot := next_expected(row)) and slot <= now]
    return min(waiting, key=lambda each: each.since, default=None)


def observed(policies: QuerySet[RetentionPolicy]) -> QuerySet[Any]:
    """With `last`, the newest slot that was answered, and `begun`, since when any revision has been in force."""
    newest = ScheduleSlot.objects.filter(policy=OuterRef("pk")).order_by("-scheduled_for")
    return policies.annotate(
        last=Subquery(newest.values("scheduled_for")[:1]), begun=Min("revisions__in_force_from")
    ).order_by("code")


def next_expected(row: Any) -> datetime | None:
    """The first slot of an observed policy that has no answer; None: none of its revisions has come into force."""
    if row.begun is None:
        return None
    since = row.last or row.begun
    since = max(since, row.rescheduled_at) if row.rescheduled_at else since
    slot: datetime = row.next_slot(since)
    return slot


def outlook(policies: QuerySet[RetentionPolicy], most: int) -> list[Outlook]:
    """Of each of these policies, the first `most` by their codes, in three queries."""
    now = clock.now()
    rows = list(observed(policies)[:most])
    counted = ScheduleSlot.objects.filter(policy__in=[row.pk for row in rows], scheduled_for__gt=now - OUTLOOK_OVER)
    answers: dict[int, dict[str, int]] = {}
    for pk, outcome, number in counted.order_by().values_list("policy_id", "outcome").annotate(Count("pk")):
        answers.setdefault(pk, {})[outcome] = number
    return [expected(row, now, answers.get(row.pk, {})) for row in rows]


def expected(row: Any, now: datetime, answers: dict[str, int]) -> Outlook:
    slot = next_expected(row)
    if slot is None:
        return Outlook(row, row.last, None, False, answers)
    return Outlook(row, row.last, row.next_slot(now), slot < now - GRACE, answers)


def answer(policy: RetentionPolicy) -> CleanupRun | None:
    """Answer the slots of one policy that are due, unless another scheduler is about it; returns a new run."""
    if not due_slots(policy)[0]:
        return None
    with transaction.atomic():
        locked = RetentionPolicy.objects.select_for_update(no_key=True, skip_locked=True).filter(pk=policy.pk).first()
        if locked is None:
            return None
        slots, now = due_slots(locked)  # looked at again: another scheduler may have been here before our lock
        if not slots:
            return None
        return decide(locked, slots, now)


def due_slots(policy: RetentionPolicy) -> tuple[list[datetime], datetime]:
    """The slots after the last recorded one, or after the first revision took effect; and the present time."""
    last = policy.slots.aggregate(last=Max("scheduled_for"))["last"]
    begun = policy.revisions.aggregate(at=Min("in_force_from"))["at"]
    now: datetime = RetentionPolicy.objects.values_list(Now(), flat=True)[:1][0]
    slots: list[datetime] = []
    if begun is not None:
        since = last or begun
        if policy.rescheduled_at is not None:
            since = max(since, policy.rescheduled_at)
        times = croniter(policy.schedule, since, ret_type=datetime)
        while (slot := times.get_next()) <= now:
            slots.append(slot)
    return slots, now


def decide(policy: RetentionPolicy, slots: list[datetime], now: datetime) -> CleanupRun | None:
    """Record an answer to each slot; the newest may open a run, as the policy chose for slots that were missed."""
    *earlier, newest = slots
    if policy.suspended_at is not None:
        record(policy, slots, Outcome.REFUSED, "The policy is suspended.")
        return None
    record(policy, earlier, Outcome.MISSED, "Noticed after a later slot was due.")
    if now - newest > GRACE and policy.missed_slots == RetentionPolicy.MissedSlots.SKIP:
        record(policy, [newest], Outcome.MISSED, f"Noticed {now - newest} late; the policy skips missed slots.")
        return None
    try:
        run, _new = runs.open_run(policy=policy, by=None, scheduled_for=newest)
    except LedgerError as error:
        outcome = Outcome.OVERLAP if isinstance(error, RunOverlap) else Outcome.REFUSED
        record(policy, [newest], outcome, str(error))
        return None
    record(policy, [newest], Outcome.OPENED, run=run)
    queue.wake(FREEZE, run.pk)
    return run


def record(
    policy: RetentionPolicy,
    slots: Iterable[datetime],
    outcome: ScheduleSlot.Outcome,
    reason: str = "",
    run: CleanupRun | None = None,
) -> None:
    rows = [ScheduleSlot(policy=policy, scheduled_for=at, outcome=outcome, reason=reason, run=run) for at in slots]
    ScheduleSlot.objects.bulk_create(rows, batch_size=1000)
    if rows:
        log.info("slots answered", policy=policy.code, outcome=outcome, slots=len(rows), newest=str(rows[-1]))
