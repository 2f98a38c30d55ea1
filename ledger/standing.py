"""How runs stand: whose turn it is, what comes next and when, and how far each has come."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from django.db.models import Count, IntegerField, Max, Min, Sum, Value

from cleanup_project.base import clock
from cleanup_project.base.canonical import instant
from cleanup_project.base.models import Alarm, AuditEvent
from ledger import dispositions
from ledger.models import CleanupRun, ManifestPart, RunTally, SkippedItem
from ledger.next_action import Next, Turn
from ledger.runs import COUNTS, window_opens
from ledger.states import RunState
from retention.models import StopSwitch

PACE_OVER: Final = timedelta(minutes=5)
PACE_FROM: Final = timedelta(seconds=30)  # of a shorter stretch no pace is told
# Outcomes in the order in which people look for them; the column of a list that each belongs to.
OUTCOMES: Final = {
    "deleted": "deleted",
    "by_absence": "deleted",
    "already_absent": "absent",
    "held": "blocked",
    "dead": "quarantined",
    "withdrawn": "withdrawn",
}


@dataclass(frozen=True, slots=True)
class Progress:
    """Items by outcome so far, of `total` that are to be destroyed. As counted when the run closed, or as settled so far."""

    total: int
    outcomes: dict[str, int] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """Items that have an outcome. One that was replayed counts where it is now."""
        return min(sum(self.outcomes.values()), self.total)

    @property
    def left(self) -> int:
        return self.total - self.done

    def grouped(self) -> dict[str, int]:
        """By the words of OUTCOMES, without those of which there are none."""
        sums: dict[str, int] = dict.fromkeys(OUTCOMES.values(), 0)
        for outcome, number in self.outcomes.items():
            sums[OUTCOMES.get(outcome, outcome)] = sums.get(OUTCOMES.get(outcome, outcome), 0) + number
        return {words: number for words, number in sums.items() if number > 0}


def progress(runs: Iterable[CleanupRun]) -> dict[int, Progress]:
    """How far each of these runs has come, by its id; one query for all that have not closed."""
    found = {run.pk: Progress(run.remaining_count or 0) for run in runs}
    for run in runs:
        counted = {name: number for name, number in (run.counts or {}).items() if name != "exempt"}
        found[run.pk].outcomes.update(counted)
    working = [run.pk for run in runs if run.counts is None and run.published_parts]
    if working:
        tallied = RunTally.objects.filter(run__in=working).values_list("run_id", "outcome")
        skipped = SkippedItem.objects.filter(run__in=working).order_by().values_list("run_id", Value("withdrawn"))
        whole = IntegerField()
        sums = tallied.order_by().annotate(number=Sum("commands", output_field=whole))
        for pk, outcome, number in sums.union(skipped.annotate(number=Count("pk", output_field=whole)), all=True):
            own = found[pk].outcomes
            own[outcome] = own.get(outcome, 0) + number
    return found


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What the parts of a run looked at, and what they left out of its candidates."""

    parts: int = 0
    read: int = 0
    held: int = 0
    not_enforced: int = 0
    items: int = 0


def left_out(runs: Sequence[CleanupRun]) -> dict[int, LeftOut]:
    """By the id of the run; one query."""
    sums = ManifestPart.objects.filter(run__in=[run.pk for run in runs]).order_by().values_list("run_id")
    counted = sums.annotate(Count("pk"), Sum("read"), Sum("held"), Sum("not_enforced"), Sum("item_count"))
    return {pk: LeftOut(*numbers) for pk, *numbers in counted}


@dataclass(frozen=True, slots=True)
class Pace:
    """Items a second over `over`, and when the rest would be done at that."""

    per_second: float
    over: timedelta
    ends_at: datetime | None


def pace(run: CleanupRun, left: int) -> Pace | None:
    """How fast a draining run has gone lately; None where it does not drain, or nothing can be said yet."""
    if run.state != RunState.DRAINING:
        return None
    now = clock.now()
    # The first settlement only begins the stretch: how long it took is not known.
    lately = RunTally.objects.filter(run=run, at__gt=now - PACE_OVER)
    span = lately.aggregate(first=Min("at"), last=Max("at"))
    if span["first"] is None or now - span["first"] < PACE_FROM:
        return None
    done = lately.filter(at__gt=span["first"]).aggregate(done=Sum("commands"))["done"] or 0
    over = now - span["first"]
    if done <= 0:
        return Pace(0.0, over, None)
    per_second = done / over.total_seconds()
    return Pace(per_second, over, now + timedelta(seconds=left / per_second))


def of_run(run: CleanupRun, now: Progress) -> Next:
    """Whose turn it is with a run."""
    return TURNS[RunState(run.state)](run, now)


def of_scanning(run: CleanupRun, now: Progress) -> Next:
    return Next(Turn.AUTOMATIC, "Its manifest is being frozen, part by part. Nothing is destroyed before it is sealed.")


def of_waiting(run: CleanupRun, now: Progress) -> Next:
    review = dispositions.under_review(run.pk)
    if review is not None:
        job, turn = review.job, Turn.AUTOMATIC if review.job.state == "running" else Turn.PERSON
        words = f"Bulk job {job.pk} takes items out of it, {job.done:,} of {job.total:,} so far, and is {job.state}."
        return Next(turn, f"{words} Before that has ended it cannot be approved.")
    if not run.remaining_root:
        return Next(
            Turn.AUTOMATIC, "What remains after the last exemption is being counted; then it waits for a person."
        )
    if not run.remaining_count:
        return Next(Turn.PERSON, "Everything in it is exempted: nothing remains to be approved. Cancel it.")
    besides = f" other than {run.opened_by}, who opened it," if run.opened_by else ""
    why = "It exceeds a cap" if run.guards.get("over") else "Its policy asks for an approval of each run"
    return Next(
        Turn.PERSON,
        f"{why}. Somebody{besides} with the right approve_run reads its manifest and approves what remains, exempts items, "
        "or cancels it. Until then nothing is destroyed, however long that takes.",
    )


def of_cooling(run: CleanupRun, now: Progress) -> Next:
    words = "It cools off: until then it can be cancelled without effect, and items exempted. Then it begins by itself."
    return Next(Turn.AUTOMATIC, words, run.cooling_until)


def of_authorised(run: CleanupRun, now: Progress) -> Next:
    return Next(Turn.AUTOMATIC, "Authorised: its first commands are published next, and are due at once.")


def of_draining(run: CleanupRun, now: Progress) -> Next:
    stopped = " ".join(stops(run))
    if stopped:
        return Next(Turn.PERSON, f"{stopped} Somebody with the right rearm lifts it.")
    if run.policy.suspended_at is not None:
        words = f"Its policy is suspended ({run.policy.suspended_reason}): nothing of it is destroyed."
        return Next(Turn.PERSON, words)
    mismatch = Alarm.objects.open().filter(kind=COUNTS, subject_id=str(run.pk)).first()
    if mismatch is not None:
        return Next(Turn.PERSON, mismatch.message)
    opens = window_opens(run)
    if opens is not None:
        return Next(Turn.AUTOMATIC, "It waits for its window: that of its policy is closed until then.", opens)
    if now.left:
        return Next(Turn.AUTOMATIC, "Its commands are executed. It closes by itself once each of them has an outcome.")
    return Next(Turn.AUTOMATIC, "Each of its items has an outcome: the next sweep closes it, if its counts add up.")


def stops(run: CleanupRun) -> Iterable[str]:
    """The stop switches that are on for it, or for all that it works on."""
    buckets = {stream["bucket_id"] for stream in run.streams if "bucket_id" in stream}
    switches = StopSwitch.objects.active().concerning(run.tenant_id, run.policy_id, buckets)
    for each in switches.select_related("pressed_by", "tenant", "bucket", "policy").order_by("pk"):
        by = each.pressed_by or "the system"
        yield f"Stopped by {by} since {instant(each.pressed_at)} ({each}): {each.reason}"


def of_paused(run: CleanupRun, now: Progress) -> Next:
    return Next(Turn.PERSON, f"{latest(run, 'run.paused', 'Paused')} Somebody with the right operate resumes it.")


def of_tripped(run: CleanupRun, now: Progress) -> Next:
    told = latest(run, "run.tripped", "The circuit breaker stopped it")
    return Next(
        Turn.PERSON, f"{told} See in quarantine why, repair it; then somebody with the right rearm re-arms the run."
    )


def of_closed(run: CleanupRun, now: Progress) -> Next:
    if run.mode == CleanupRun.Mode.DRY_RUN:
        return Next(Turn.NOBODY, "It was a dry run: it says what would be destroyed, and destroys nothing.")
    if not run.item_count:
        return Next(Turn.NOBODY, "There was nothing to destroy.")
    quarantined = (run.counts or {}).get("dead", 0)
    if quarantined:
        return Next(
            Turn.NOBODY,
            f"It has ended, and its counts add up. When it closed, {quarantined:,} of its commands were in quarantine: those "
            "wait there for a person, and not with the run.",
        )
    return Next(Turn.NOBODY, "It has ended, and its counts add up.")


def of_cancelled(run: CleanupRun, now: Progress) -> Next:
    told = latest(run, "run.cancelled", "Cancelled")
    return Next(Turn.NOBODY, f"{told} It never goes on; a later run may find the same objects again.")


def latest(run: CleanupRun, action: str, words: str) -> str:
    """The last such act, in words: by whom, when and why."""
    found = AuditEvent.objects.filter(subject_type="ledger.cleanuprun", subject_id=str(run.pk), action=action)
    event = found.order_by("-id").first()
    if event is None:
        return f"{words}."
    by = f" by {event.actor_name}" if event.actor_id else ""
    return f"{words}{by} at {instant(event.at)}: {event.reason}"


TURNS: Final = {
    RunState.SCANNING: of_scanning,
    RunState.NEEDS_APPROVAL: of_waiting,
    RunState.COOLING_OFF: of_cooling,
    RunState.AUTHORISED: of_authorised,
    RunState.DRAINING: of_draining,
    RunState.PAUSED: of_paused,
    RunState.TRIPPED: of_tripped,
    RunState.CLOSED: of_closed,
    RunState.CANCELLED: of_cancelled,
}
