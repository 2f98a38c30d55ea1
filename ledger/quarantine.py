"""What people decide about commands that do not go on by themselves: replay one, or close its quarantine entry."""

from collections.abc import Sequence
from typing import Final, TypeVar

import structlog
from django.contrib.postgres.functions import TransactionNow
from django.db import transaction
from django.db.models import Model
from django.db.models.functions import Now

from cleanup_project.base import audit, clock
from cleanup_project.base.canonical import instant
from cleanup_project.base.models import User
from ledger import claim, next_action, notices, outcomes, present, publish
from ledger.exceptions import AlreadyDecided, LedgerError, NotPermitted, NotReplayable
from ledger.models import CleanupCommand, CleanupRun, CommandTarget, DeadLetter, Decision
from ledger.states import CommandState, RunState
from retention import holds
from retention.eligibility import WORDS
from retention.models import ObjectVersion, PolicyRevision

PARKED: Final = frozenset({CommandState.HELD, CommandState.DEAD, CommandState.WITHDRAWN})

log = structlog.get_logger(__name__)

M = TypeVar("M", bound=Model)


def replay(*, command: CleanupCommand, by: User, reason: str, repair: str = "") -> CleanupCommand:
    """Let a parked command be tried again, in its next cycle, after everything was checked anew.

    `repair` says what was repaired before: credentials, policy, locator. Locks in the product's order: the tenant's hold
    lock, the run, object versions, the command. Raises NotPermitted, AlreadyDecided, NotReplayable.
    """
    permit(by, "operate", "replay commands")
    if not reason.strip():
        raise LedgerError("State a reason for the replay.")
    with transaction.atomic():
        holds.share_lock(command.tenant_id)
        run = CleanupRun.objects.select_for_update(no_key=True).get(pk=command.run_id)
        targets = list(command.targets.order_by("ordinal"))
        versions = lock(ObjectVersion, [target.object_version_id for target in targets])
        (row,) = lock(CleanupCommand, [command.pk])
        if row.run_id != run.pk:
            raise AlreadyDecided(f"{row} was taken up by a later run meanwhile: see what became of it there.")
        check(row, run, targets, versions)
        entries = begin_cycle(row, by, reason, repair)
        publish.make_ready(row.tenant_id, [row.bucket_id])
        notices.tell(row.tenant_id, notices.of_quarantine(notices.RESOLVED, entries))
    before = row.state
    row.refresh_from_db()
    log.info("replayed", command=row.key, before=before, cycle=row.cycle, by=by.get_username())
    return row


def lock(model: type[M], ids: Sequence[int]) -> list[M]:
    return list(model._default_manager.select_for_update(no_key=True).filter(pk__in=ids).order_by("pk"))


def begin_cycle(row: CleanupCommand, by: User, reason: str, repair: str) -> list[int]:
    """The decision first, since the guard looks for it; then the command, its targets and its quarantine entry.

    Returns the entry that this has resolved, if there was one.
    """
    Decision.objects.create(
        command=row, cycle=row.cycle + 1, kind=Decision.Kind.REPLAY, by=by, reason=reason, repair=repair
    )
    CleanupCommand.objects.filter(pk=row.pk).update(
        state=CommandState.READY, cycle=row.cycle + 1, attempts=0, lease_losses=0, failure_class="", due_at=TransactionNow(),
        held_by="", held_until=None, hold=None, reason="", changed_at=Now(),
    )  # fmt: skip
    row.targets.filter(active=False).update(active=True)
    entries = list(row.dead_letters.filter(resolved_at=None).values_list("pk", flat=True))
    row.dead_letters.filter(pk__in=entries).update(
        resolved_at=Now(), resolution=DeadLetter.Resolution.REPLAYED, resolved_by=by, reason=reason
    )
    outcomes.tally_back(row.run_id, row.state)
    audit.record(
        action="command.replayed", subject=row, by=by, reason=reason, before={"state": row.state, "cycle": row.cycle},
        after={"cycle": row.cycle + 1, "repair": repair},
    )  # fmt: skip
    return entries


def why_not(command: CleanupCommand) -> str:
    """What would refuse a replay now, in words, or nothing. Looks without locks, so only `replay` itself is sure."""
    targets = list(command.targets.order_by("ordinal"))
    versions = list(ObjectVersion.objects.filter(pk__in=[target.object_version_id for target in targets]))
    try:
        check(command, command.run, targets, versions)
    except (AlreadyDecided, NotReplayable) as refusal:
        return str(refusal)
    return ""


def check(
    command: CleanupCommand, run: CleanupRun, targets: Sequence[CommandTarget], versions: Sequence[ObjectVersion]
) -> None:
    """Raise where a replay must not be. A later statement than the hold lock's, so that it sees every hold."""
    state_allows(command, run)
    nothing_keeps(command)
    still_eligible(command, targets, versions)
    other = (
        CommandTarget.objects.filter(object_version_id__in=[each.pk for each in versions], active=True)
        .exclude(command=command)
        .select_related("command")
        .first()
    )
    if other is not None:
        raise NotReplayable(f"Another command has one of its objects: {other.command}. Let that one end.")


def state_allows(command: CleanupCommand, run: CleanupRun) -> None:
    if command.state not in PARKED:
        raise AlreadyDecided(f"{command} is {command.state}, so there is nothing to replay{taken_up(command)}.")
    if command.inspect_due is not None:
        raise NotReplayable(
            "An earlier request may have been executed, and what became of it is not known yet. It is looked at by "
            f"itself from {instant(command.inspect_due)} on: wait for that."
        )
    if run.state == RunState.CANCELLED:
        raise NotReplayable(f"{run} was cancelled: open a new run, which takes up what is still eligible.")
    if command.held_by == CleanupCommand.HeldBy.STORE and command.held_until and command.held_until > clock.now():
        raise NotReplayable(f"The store retains it until {instant(command.held_until)}: replay it after that.")


def taken_up(command: CleanupCommand) -> str:
    last = command.decisions.filter(cycle=command.cycle).select_related("by").first()
    if last is None:
        return ""
    return f": {last.get_kind_display()}" + (f" by {last.by}" if last.by else "") + f" at {instant(last.at)}"


def nothing_keeps(command: CleanupCommand) -> None:
    """The stop switches, and of every target the holds and the enforcement, as the claim will look at them."""
    stopped = next_action.stopped_by(command)
    if stopped:
        raise NotReplayable(f"{stopped} Have it lifted first.")
    facts = [row[-4:] for row in claim.check([command.pk], command.tenant_id)[command.pk]]
    if len(facts) != command.target_count:
        raise NotReplayable("Its targets are not on record any more: a later run must find the object again.")
    held = sorted({hold for hold, *_ in facts if hold is not None})
    if held:
        named = ", ".join(f"hold {hold}" for hold in held)
        raise NotReplayable(f"A legal hold covers it ({named}): nothing of it is destroyed until that is released.")
    if not all(enforced for _hold, enforced, *_ in facts):
        raise NotReplayable("Enforcement is off where one of its targets is: have it switched on there first.")


def still_eligible(
    command: CleanupCommand, targets: Sequence[CommandTarget], versions: Sequence[ObjectVersion]
) -> None:
    by_id = {each.pk: each for each in versions}
    verdict = present.judged(command, by_id[targets[0].object_version_id], clock.now())
    if not verdict.eligible:
        raise NotReplayable(f"It is not eligible now. {WORDS[verdict.reason]}")
    if verdict.governed_by is None or verdict.governed_by.revision_id != command.revision_id:
        label = verdict.governed_by.label if verdict.governed_by else "nothing"
        own = PolicyRevision.objects.select_related("policy").get(pk=command.revision_id)
        raise NotReplayable(f"{label} governs it now, not {own}: a run of that policy decides about it.")
    coupled = {each.id for each in verdict.targets}
    for target in targets:
        if target.object_version_id not in coupled and by_id[target.object_version_id].gone_at is None:
            raise NotReplayable(
                f"{target} does not go with this original any more: correct the catalogue, or close it."
            )


def close(*, command: CleanupCommand, by: User, reason: str) -> DeadLetter:
    """Close the command's quarantine entry without retry; the command stays dead.

    A later authorised run that finds its object eligible still takes it up. Raises NotPermitted, AlreadyDecided.
    """
    permit(by, "review_quarantine", "close quarantine entries")
    if not reason.strip():
        raise LedgerError("State a reason for closing it without retry.")
    with transaction.atomic():
        (row,) = lock(CleanupCommand, [command.pk])
        entry = row.dead_letters.filter(resolved_at=None).first()
        if entry is None:
            last = row.dead_letters.order_by("-cycle").first()
            said = (
                f": {last.get_resolution_display()}, {instant(last.resolved_at)}" if last and last.resolved_at else ""
            )
            raise AlreadyDecided(f"{row} has no open quarantine entry{said}.")
        row.dead_letters.filter(pk=entry.pk).update(
            resolved_at=Now(), resolution=DeadLetter.Resolution.CLOSED, resolved_by=by, reason=reason
        )
        told = {"failure_class": entry.failure_class, "cycle": entry.cycle}
        audit.record(action="command.closed", subject=row, by=by, reason=reason, before=told)
        notices.tell(row.tenant_id, notices.of_quarantine(notices.RESOLVED, [entry.pk]))
    entry.refresh_from_db()
    log.info("closed without retry", command=row.key, by=by.get_username())
    return entry


def permit(by: User, right: str, what: str) -> None:
    if not by.has_perm(f"base.{right}"):
        raise NotPermitted(f"{by} may not {what}: no role of theirs has the right {right}.")
