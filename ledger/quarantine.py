"""What people decide about commands that do not go on by themselves: replay them, or close their quarantine entries.

One or hundreds alike. Locks in the product's order: the tenants' hold locks, runs, object versions, commands.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import TypeVar

import structlog
from django.contrib.postgres.functions import TransactionNow
from django.db import transaction
from django.db.models import F, Model
from django.db.models.functions import Now

from cleanup_project.base import audit, tenancy
from cleanup_project.base.canonical import instant
from cleanup_project.base.models import User
from ledger import notices, outcomes, publish
from ledger.exceptions import AlreadyDecided, LedgerError, NotPermitted
from ledger.models import CleanupCommand, CleanupRun, CommandTarget, DeadLetter, Decision
from ledger.replayable import PARKED, Case, case, refusals, targets_of, why_not
from retention import holds
from retention.models import ObjectVersion

__all__ = ["PARKED", "close", "close_each", "permit", "replay", "replay_each", "why_not"]

log = structlog.get_logger(__name__)

M = TypeVar("M", bound=Model)


def replay(*, command: CleanupCommand, by: User, reason: str, repair: str = "") -> CleanupCommand:
    """Let a parked command be tried again, in its next cycle, after everything was checked anew.

    `repair` says what was repaired before: credentials, policy, locator. Raises NotPermitted, AlreadyDecided, NotReplayable.
    """
    permit(by, "operate", "replay commands", command)
    if not reason.strip():
        raise LedgerError("State a reason for the replay.")
    with transaction.atomic():
        refusal = replay_each([command.pk], by, reason, repair)[command.pk]
        if refusal is not None:
            raise refusal
    command = CleanupCommand.objects.select_related("run").get(pk=command.pk)
    log.info("replayed", command=command.key, cycle=command.cycle, by=by.get_username())
    return command


def replay_each(
    ids: Collection[int], by: User, reason: str, repair: str, entries: Collection[int] | None = None
) -> dict[int, LedgerError | None]:
    """Replay those commands that may be, in the caller's transaction; returns what refused each of the others.

    `entries`, where they are given, must still be open: what was decided about was these, and not a later failure.
    """
    cases, moved = locked(ids)
    told: dict[int, LedgerError | None] = dict(moved)
    if entries is not None:
        still = set(DeadLetter.objects.filter(pk__in=entries, resolved_at=None).values_list("command", flat=True))
        told |= {each.command.pk: none_open(each.command) for each in cases if each.command.pk not in still}
        cases = [each for each in cases if each.command.pk in still]
    going = list[Case]()
    for each, refusal in refusals(cases):
        told[each.command.pk] = refusal
        if refusal is None:
            going.append(each)
    if going:
        begin_cycles([each.command for each in going], by, reason, repair)
    return told


def locked(ids: Collection[int]) -> tuple[list[Case], dict[int, LedgerError]]:
    """The commands under every lock that a replay needs, and those that a later run took up before they were locked."""
    known = dict(CleanupCommand.objects.filter(pk__in=ids).values_list("pk", "run_id"))
    for tenant_id in (
        CleanupCommand.objects.filter(pk__in=ids).order_by("tenant").values_list("tenant", flat=True).distinct()
    ):
        holds.share_lock(tenant_id)
    runs = {each.pk: each for each in lock(CleanupRun, known.values())}
    targets = targets_of(list(known))
    wanted = {target.object_version_id for found in targets.values() for target in found}
    versions = {each.pk: each for each in lock(ObjectVersion, wanted)}
    cases, moved = list[Case](), dict[int, LedgerError]()
    for row in lock(CleanupCommand, known):
        if row.run_id != known[row.pk]:
            moved[row.pk] = AlreadyDecided(f"{row} was taken up by a later run meanwhile: see what became of it there.")
        else:
            cases.append(case(row, runs[row.run_id], targets[row.pk], versions))
    return cases, moved


def lock(model: type[M], ids: Collection[int]) -> list[M]:
    return list(model._default_manager.select_for_update(no_key=True).filter(pk__in=set(ids)).order_by("pk"))


def begin_cycles(rows: Sequence[CleanupCommand], by: User, reason: str, repair: str) -> None:
    """The decisions first, since the guard looks for them; then the commands, their targets and quarantine entries.

    `rows` are as they were before, each under its lock.
    """
    ids = [row.pk for row in rows]
    Decision.objects.bulk_create(
        Decision(command=row, cycle=row.cycle + 1, kind=Decision.Kind.REPLAY, by=by, reason=reason, repair=repair)
        for row in rows
    )
    CleanupCommand.objects.filter(pk__in=ids).update(
        state="ready", cycle=F("cycle") + 1, attempts=0, lease_losses=0, failure_class="", due_at=TransactionNow(),
        held_by="", held_until=None, hold=None, reason="", changed_at=Now(),
    )  # fmt: skip
    CommandTarget.objects.filter(command__in=ids, active=False).update(active=True)
    resolved = resolve(DeadLetter.Resolution.REPLAYED, ids, by, reason)
    outcomes.tally_back(Counter((row.run_id, row.state) for row in rows))
    for (state, cycle), alike in grouped(rows).items():
        audit.record_each(
            action="command.replayed", subjects=alike, by=by, reason=reason, before={"state": state, "cycle": cycle},
            after={"cycle": cycle + 1, "repair": repair},
        )  # fmt: skip
    for tenant_id in sorted({row.tenant_id for row in rows}):
        publish.make_ready(tenant_id, sorted({row.bucket_id for row in rows if row.tenant_id == tenant_id}))
    tell(resolved)


def grouped(rows: Sequence[CleanupCommand]) -> dict[tuple[str, int], list[CleanupCommand]]:
    found = defaultdict[tuple[str, int], list[CleanupCommand]](list)
    for row in rows:
        found[row.state, row.cycle].append(row)
    return found


def resolve(
    resolution: DeadLetter.Resolution,
    ids: Collection[int],
    by: User,
    reason: str,
    entries: Collection[int] | None = None,
) -> list[DeadLetter]:
    """Resolve the open entries of these commands, which are locked; returns them as they were."""
    rows = DeadLetter.objects.filter(command__in=ids, resolved_at=None).order_by("pk")
    found = list(rows if entries is None else rows.filter(pk__in=entries))
    DeadLetter.objects.filter(pk__in=[each.pk for each in found]).update(
        resolved_at=Now(), resolution=resolution, resolved_by=by, reason=reason
    )
    return found


def tell(resolved: Sequence[DeadLetter]) -> None:
    """Last in the transaction, a tenant at a time: the order in which lanes are locked."""
    by_tenant = defaultdict[int, list[int]](list)
    for each in resolved:
        by_tenant[each.tenant_id].append(each.pk)
    for tenant_id, entries in sorted(by_tenant.items()):
        notices.tell(tenant_id, notices.of_quarantine(notices.RESOLVED, entries))


def close(*, command: CleanupCommand, by: User, reason: str) -> DeadLetter:
    """Close the command's quarantine entry without retry; the command stays dead.

    A later authorised run that finds its object eligible still takes it up. Raises NotPermitted, AlreadyDecided.
    """
    permit(by, "review_quarantine", "close quarantine entries", command)
    if not reason.strip():
        raise LedgerError("State a reason for closing it without retry.")
    with transaction.atomic():
        entries = close_each([command.pk], by, reason)
        if not entries:
            raise none_open(command)
    (entry,) = entries
    entry.refresh_from_db()
    log.info("closed without retry", command=command.key, by=by.get_username())
    return entry


def close_each(ids: Collection[int], by: User, reason: str, entries: Collection[int] | None = None) -> list[DeadLetter]:
    """Close the open entries of these commands, of `entries` alone where they are given, in the caller's transaction.

    Returns those that were closed.
    """
    commands = {row.pk: row for row in lock(CleanupCommand, ids)}
    closed = resolve(DeadLetter.Resolution.CLOSED, list(commands), by, reason, entries)
    alike = defaultdict[tuple[str, int], list[CleanupCommand]](list)
    for each in closed:
        alike[each.failure_class, each.cycle].append(commands[each.command_id])
    for (kind, cycle), rows in alike.items():
        told = {"failure_class": kind, "cycle": cycle}
        audit.record_each(action="command.closed", subjects=rows, by=by, reason=reason, before=told)
    tell(closed)
    return closed


def none_open(command: CleanupCommand) -> AlreadyDecided:
    last = command.dead_letters.order_by("-cycle").first()
    said = f": {last.get_resolution_display()}, {instant(last.resolved_at)}" if last and last.resolved_at else ""
    return AlreadyDecided(f"{command} has no open quarantine entry{said}.")


def permit(by: User, right: str, what: str, command: CleanupCommand) -> None:
    if not by.has_perm(f"base.{right}"):
        raise NotPermitted(f"{by} may not {what}: no role of theirs has the right {right}.")
    tenancy.permit(by, command, NotPermitted)
