"""Runs: open, approve, pause, resume, re-arm, cancel, and what follows a manifest's sealing."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from cleanup_project.base import alarms, apitokens, audit, clock, queue, tenancy
from cleanup_project.base.models import User
from ledger import floors, notices
from ledger.exceptions import IdempotencyConflict, InputRefused, LedgerError, NotPermitted, RunOverlap
from ledger.models import CleanupRun, ManifestReview
from ledger.states import RUN_ENDED, RunState
from retention import control, enforcement, governing, scan
from retention.models import PolicyRevision, RetentionPolicy

TRIPPED = "run.tripped"  # alarms
COUNTS = "run.counts"
OPEN_TO_REVIEW: Final = frozenset({RunState.NEEDS_APPROVAL, RunState.COOLING_OFF})

log = structlog.get_logger(__name__)


def open_run(
    *,
    policy: RetentionPolicy,
    by: User | None,
    mode: CleanupRun.Mode | None = None,
    idempotency_key: str | None = None,
    scheduled_for: datetime | None = None,
) -> tuple[CleanupRun, bool]:
    """Open a run at the database's present time; returns (run, whether it is new).

    Without a mode it enforces where enforcement is switched on for any part of the policy's scope, and is a dry run
    elsewhere. The same idempotency key returns the same run for ever, whatever would be chosen now; asked for with another
    policy or mode, or with one where there was none, it raises IdempotencyConflict. Raises RunOverlap while a run of this
    policy and mode is open, and InputRefused for an enforcing run where the catalogue is no ground to destroy anything; a
    dry run goes on and keeps what speaks against it.
    """
    tenancy.permit(by, policy, NotPermitted)
    if idempotency_key is not None:
        earlier = CleanupRun.objects.filter(idempotency_key=idempotency_key).first()
        if earlier is not None:
            return same_request(earlier, policy, mode), False
    asked, mode = mode, mode or default_mode(policy)
    rules = own_rules(policy, clock.now())
    earlier = refuse_overlap(policy, mode, idempotency_key)
    if earlier is not None:
        return same_request(earlier, policy, asked), False
    found = floors.check(policy, rules)
    if found and mode == CleanupRun.Mode.ENFORCE:
        raise InputRefused(" ".join(finding["message"] for finding in found))
    try:
        with transaction.atomic():
            as_of = clock.now()
            streams = [stream.as_json() for stream in scan.plan(own_rules(policy, as_of), as_of)]
            asked_for = {"asked_mode": asked or "", "idempotency_key": idempotency_key, "scheduled_for": scheduled_for}
            return insert_run(policy, mode, by, as_of, streams, found, **asked_for), True
    except IntegrityError:
        # Another opener was first; which constraint it was decides the answer.
        winner = CleanupRun.objects.filter(idempotency_key=idempotency_key).first() if idempotency_key else None
        if winner is not None:
            return same_request(winner, policy, asked), False
        refuse_overlap(policy, mode)
        raise


def refuse_overlap(
    policy: RetentionPolicy, mode: CleanupRun.Mode, idempotency_key: str | None = None
) -> CleanupRun | None:
    """Raises RunOverlap; returns the open run where it is the answer: this key opened it since the key was looked for."""
    busy = CleanupRun.objects.open().filter(policy=policy, mode=mode).first()
    if busy is not None and idempotency_key is not None and busy.idempotency_key == idempotency_key:
        return busy
    if busy is not None:
        words = f"{busy} of policy {policy} is still {busy.get_state_display()}: let it end, or cancel it."
        raise RunOverlap(words, run=busy.key)
    return None


def default_mode(policy: RetentionPolicy) -> CleanupRun.Mode:
    """Enforce where any part of the policy's scope is under enforcement, else a dry run."""
    places = enforcement.switched_on(policy.tenant_id)
    for revision in revisions_of(policy):
        for bucket, prefix in places:
            if bucket in revision.bucket_ids and any(
                own.startswith(prefix) or prefix.startswith(own) for own in revision.prefixes
            ):
                return CleanupRun.Mode.ENFORCE
    return CleanupRun.Mode.DRY_RUN


def same_request(run: CleanupRun, policy: RetentionPolicy, mode: CleanupRun.Mode | None) -> CleanupRun:
    if run.policy_id != policy.pk or run.asked_mode != (mode or ""):
        raise IdempotencyConflict(f"This idempotency key opened {run}, which is another request; use a new key.")
    return run


def insert_run(
    policy: RetentionPolicy,
    mode: CleanupRun.Mode,
    by: User | None,
    as_of: datetime,
    streams: list[dict[str, Any]],
    found: list[dict[str, Any]],
    **asked_for: Any,
) -> CleanupRun:
    run = CleanupRun.objects.create(
        key=f"{policy.code}:{as_of:%Y%m%dT%H%M%S.%fZ}",
        tenant_id=policy.tenant_id,
        policy=policy,
        mode=mode,
        as_of=as_of,
        streams=streams,
        opened_by=by,
        guards={"floors": found},
        **asked_for,
    )
    audit.record(action="run.opened", subject=run, by=by, after={"mode": mode, "as_of": as_of.isoformat()})
    notices.tell(run.tenant_id, [notices.opened(run)])
    log.info("run opened", run=run.key, mode=mode, streams=len(run.streams))
    return run


def open_erasure(revision: PolicyRevision, request_id: int, *, by: User) -> CleanupRun:
    """The run of an erasure request, in the transaction of its approval: it reads the request's list and nothing else."""
    streams = [{"revision_id": revision.pk, "erasure": request_id}]
    return insert_run(revision.policy, CleanupRun.Mode.ENFORCE, by, clock.now(), streams, found=[])


def own_rules(policy: RetentionPolicy, as_of: datetime) -> list[governing.Governing]:
    """Raises LedgerError where the policy says nothing yet."""
    if policy.erasure:
        raise LedgerError(f"{policy} belongs to an urgent erasure: file another request instead of running it again.")
    rules = governing.in_force(revisions_of(policy), as_of)
    if not rules:
        raise LedgerError(f"Policy {policy} has no revision in force: publish one first.")
    return rules


def revisions_of(policy: RetentionPolicy) -> QuerySet[PolicyRevision]:
    return PolicyRevision.objects.filter(policy=policy, published_at__isnull=False).select_related("policy")


def state_after_sealing(run: CleanupRun, item_count: int, *, over: bool) -> RunState:
    """What a sealed run waits for: nothing, a person, its cooling-off time, or its commands' publication.

    One that is over a cap waits for a person, whatever its policy authorised; never does a part of it go ahead.
    """
    if run.mode == CleanupRun.Mode.DRY_RUN or item_count == 0:
        return RunState.CLOSED
    used = used_revisions(run)
    if over or any(revision.authorisation == PolicyRevision.Authorisation.APPROVAL for revision in used):
        return RunState.NEEDS_APPROVAL
    return authorised_state(used)


def used_revisions(run: CleanupRun) -> list[PolicyRevision]:
    return list(PolicyRevision.objects.filter(pk__in={stream["revision_id"] for stream in run.streams}).order_by("pk"))


def window_opens(run: CleanupRun) -> datetime | None:
    """When the next execution window of a draining run opens; None where one is open, or the run does not drain."""
    return first_opening(used_revisions(run), clock.now()) if run.state == RunState.DRAINING else None


def first_opening(used: Sequence[PolicyRevision], now: datetime) -> datetime | None:
    """When the next execution window of any of these revisions opens; None where one is open."""
    windows = [each.window for each in used]
    found = [each.opens(now) if each else now for each in windows]
    return min(found) if found and min(found) > now else None


def authorised_state(used: Sequence[PolicyRevision]) -> RunState:
    return RunState.COOLING_OFF if any(each.cooling_off_minutes for each in used) else RunState.AUTHORISED


def entering(run: CleanupRun, state: RunState) -> dict[str, Any]:
    """What else is written when a run enters a state, in the same transaction; rings for the publication."""
    if state in RUN_ENDED:
        return {"ended_at": Now(), "end_reason": "sealed"}
    if state is RunState.NEEDS_APPROVAL:
        return {}
    used = used_revisions(run)
    fields: dict[str, Any] = {"authorised_at": Now()}
    if state is RunState.COOLING_OFF:
        fields["cooling_until"] = Now() + timedelta(minutes=max(each.cooling_off_minutes for each in used))
    else:
        queue.wake("ledger.tasks.publish", run.pk)
    if all(each.authorisation == PolicyRevision.Authorisation.STANDING for each in used):
        fields["authorisation"] = "Standing authorisation of " + ", ".join(map(str, used))
    return fields


def approve(*, run: CleanupRun, by: User, root: str, confirmation: str, reason: str) -> CleanupRun:
    """Approve exactly what remains of the manifest under the root that is named, confirmed by its number or the run's key.

    Raises LedgerError for who may not, for another root, and for another confirmation.
    """
    if not by.has_perm("base.approve_run"):
        raise LedgerError(f"{by} may not approve runs: no role of theirs has the right approve_run.")
    tenancy.permit(by, run, NotPermitted)
    if not reason.strip():
        raise LedgerError("State a reason for approving the run.")
    with transaction.atomic():
        run = CleanupRun.objects.select_for_update(no_key=True).get(pk=run.pk)
        if own := apitokens.behind(run.opened_by, by):
            raise LedgerError(f"{run} was opened by {own}: a second person must approve it.")
        if run.state != RunState.NEEDS_APPROVAL:
            raise LedgerError(f"{run} does not wait for an approval: it is {run.get_state_display()}.")
        refuse_unread(run, root, confirmation)
        state = authorised_state(used_revisions(run))
        fields = entering(run, state) | {"authorised_by": by, "authorisation": reason}
        CleanupRun.objects.filter(pk=run.pk).update(state=state, **fields)
        named = {"remaining_root": run.remaining_root, "remaining": run.remaining_count, "exempt": run.exempt_count}
        after = {"manifest_root": run.manifest_root, **named}
        audit.record(action="run.approved", subject=run, by=by, reason=reason, after=after)
    run.refresh_from_db()
    return run


def refuse_unread(run: CleanupRun, root: str, confirmation: str) -> None:
    """The approval must name what remains of the run now, and say how much that is."""
    if ManifestReview.objects.filter(run=run, job__finished_at=None).exists():
        raise LedgerError("A bulk job is still taking items out of it: let it end, or cancel it. Then look again.")
    if not run.remaining_root:
        raise LedgerError("What remains after the last exemption is still being counted: look again in a minute.")
    if root.strip().lower() != run.remaining_root:
        raise LedgerError("That is not the root of what remains: read it again, and name the root that it has now.")
    if not run.remaining_count:
        raise LedgerError(f"Nothing remains of {run}: cancel it.")
    if confirmation.strip().replace(",", "") not in {str(run.remaining_count), run.key}:
        raise LedgerError(
            "Confirm with the number of items that remain, or with the key of the run.", field="confirmation"
        )


def authorise_cooled() -> int:
    """Authorise runs whose cooling-off time is over; returns how many."""
    cooled = 0
    over = CleanupRun.objects.filter(state=RunState.COOLING_OFF, cooling_until__lte=Now())
    for pk in over.values_list("pk", flat=True):
        with transaction.atomic():
            run = CleanupRun.objects.select_for_update(no_key=True).get(pk=pk)
            if over.filter(
                pk=pk
            ).exists():  # under the lock: it may cool off anew, after an exemption and another approval
                CleanupRun.objects.filter(pk=pk).update(state=RunState.AUTHORISED)
                audit.record(action="run.cooled", subject=run, by=None)
                queue.wake("ledger.tasks.publish", pk)
                cooled += 1
    return cooled


def pause(*, run: CleanupRun, by: User, reason: str) -> CleanupRun:
    """Nothing more of the run is sent until somebody resumes it; what was sent may still be executed."""
    return steer(run, by, reason, "pause", "operate", RunState.DRAINING, RunState.PAUSED)


def resume(*, run: CleanupRun, by: User, reason: str) -> CleanupRun:
    """Go on with a paused run."""
    return steer(run, by, reason, "resume", "operate", RunState.PAUSED, RunState.DRAINING)


def rearm(*, run: CleanupRun, by: User, reason: str) -> CleanupRun:
    """Go on with a run that the circuit breaker has tripped; it counts anew from now on."""
    with transaction.atomic():
        run = steer(run, by, reason, "re-arm", "rearm", RunState.TRIPPED, RunState.DRAINING, rearmed_at=Now())
        alarms.clear(TRIPPED, run)
    return run


def steer(
    run: CleanupRun, by: User, reason: str, verb: str, right: str, source: RunState, target: RunState, **fields: Any
) -> CleanupRun:
    if not by.has_perm(f"base.{right}"):
        raise LedgerError(f"{by} may not {verb} runs: no role of theirs has the right {right}.")
    tenancy.permit(by, run, NotPermitted)
    if not reason.strip():
        raise LedgerError(f"State a reason: why {verb} the run?")
    with transaction.atomic():
        run = CleanupRun.objects.select_for_update(no_key=True).get(pk=run.pk)
        if run.state != source:
            raise LedgerError(f"{run} is {run.get_state_display()}: only a run that is {source} can {verb}.")
        control.bump(run.tenant_id)
        CleanupRun.objects.filter(pk=run.pk).update(state=target, **fields)
        audit.record(action=f"run.{target}", subject=run, by=by, reason=reason, before={"state": source})
        queue.wake("ledger.tasks.publish", run.pk)
    run.refresh_from_db()
    return run


def cancel(*, run: CleanupRun, by: User, reason: str) -> CleanupRun:
    """End a run by a person's decision. Raises LedgerError where it has ended already, or without a reason."""
    if not (by.has_perm("base.approve_run") or by.has_perm("base.operate")):
        raise LedgerError(f"{by} may not cancel runs: that needs the right approve_run or operate.")
    tenancy.permit(by, run, NotPermitted)
    if not reason.strip():
        raise LedgerError("State a reason for cancelling the run.")
    with transaction.atomic():
        locked = CleanupRun.objects.select_for_update(no_key=True).get(pk=run.pk)
        if RunState(locked.state) in RUN_ENDED:
            raise LedgerError(f"{run} has ended already: it is {locked.get_state_display()}.")
        control.bump(run.tenant_id)
        before = locked.state
        CleanupRun.objects.filter(pk=run.pk).update(state=RunState.CANCELLED, ended_at=Now(), end_reason=reason)
        for alarm in (TRIPPED, COUNTS):
            alarms.clear(alarm, run)
        audit.record(
            action="run.cancelled",
            subject=run,
            by=by,
            reason=reason,
            before={"state": before},
            after={"state": RunState.CANCELLED},
        )
        queue.wake("ledger.tasks.sweep")
        notices.tell(run.tenant_id, [notices.closed(locked, RunState.CANCELLED, {})])
    run.refresh_from_db()
    log.info("run cancelled", run=run.key, by=by.get_username())
    return run
