"""Runs: open one, decide what follows its sealing, cancel it."""

from datetime import datetime

import structlog
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from cleanup_project.base import audit, clock
from cleanup_project.base.models import User
from ledger.exceptions import IdempotencyConflict, LedgerError, RunOverlap
from ledger.models import CleanupRun
from ledger.states import RUN_ENDED, RunState
from retention import enforcement, governing, holds, scan
from retention.models import PolicyRevision, RetentionPolicy

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
    elsewhere. The same idempotency key returns the same run for ever; with another policy or mode it raises
    IdempotencyConflict. Raises RunOverlap while a run of this policy and mode is open.
    """
    mode = mode or default_mode(policy)
    holds.unpark_released()
    if idempotency_key is not None:
        earlier = CleanupRun.objects.filter(idempotency_key=idempotency_key).first()
        if earlier is not None:
            return same_request(earlier, policy, mode), False
    try:
        with transaction.atomic():
            return insert_run(policy, mode, by, idempotency_key, scheduled_for), True
    except IntegrityError as error:
        # Another opener was first; which constraint it was decides the answer.
        winner = CleanupRun.objects.filter(idempotency_key=idempotency_key).first() if idempotency_key else None
        if winner is not None:
            return same_request(winner, policy, mode), False
        busy = CleanupRun.objects.open().filter(policy=policy, mode=mode).first()
        if busy is not None:
            raise RunOverlap(
                f"{busy} of policy {policy} is still {busy.get_state_display()}: let it end, or cancel it."
            ) from error
        raise


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


def same_request(run: CleanupRun, policy: RetentionPolicy, mode: CleanupRun.Mode) -> CleanupRun:
    if run.policy_id != policy.pk or run.mode != mode:
        raise IdempotencyConflict(f"This idempotency key opened {run}, which is another request; use a new key.")
    return run


def insert_run(
    policy: RetentionPolicy,
    mode: CleanupRun.Mode,
    by: User | None,
    idempotency_key: str | None,
    scheduled_for: datetime | None,
) -> CleanupRun:
    as_of = clock.now()
    rules = own_rules(policy, as_of)
    if not rules:
        raise LedgerError(f"Policy {policy} has no revision in force: publish one first.")
    run = CleanupRun.objects.create(
        key=f"{policy.code}:{as_of:%Y%m%dT%H%M%S.%fZ}",
        tenant_id=policy.tenant_id,
        policy=policy,
        mode=mode,
        as_of=as_of,
        scheduled_for=scheduled_for,
        idempotency_key=idempotency_key,
        streams=[stream.as_json() for stream in scan.plan(rules, as_of)],
        opened_by=by,
    )
    audit.record(action="run.opened", subject=run, by=by, after={"mode": mode, "as_of": as_of.isoformat()})
    log.info("run opened", run=run.key, mode=mode, streams=len(run.streams))
    return run


def own_rules(policy: RetentionPolicy, as_of: datetime) -> list[governing.Governing]:
    return governing.in_force(revisions_of(policy), as_of)


def revisions_of(policy: RetentionPolicy) -> QuerySet[PolicyRevision]:
    return PolicyRevision.objects.filter(policy=policy, published_at__isnull=False).select_related("policy")


def state_after_sealing(run: CleanupRun, item_count: int) -> RunState:
    """What a sealed run waits for: nothing, a person, its cooling-off time, or its commands' publication."""
    if run.mode == CleanupRun.Mode.DRY_RUN or item_count == 0:
        return RunState.CLOSED
    used = {stream["revision_id"] for stream in run.streams}
    revisions = list(PolicyRevision.objects.filter(pk__in=used))
    if any(revision.authorisation == PolicyRevision.Authorisation.APPROVAL for revision in revisions):
        return RunState.NEEDS_APPROVAL
    if any(revision.cooling_off_minutes for revision in revisions):
        return RunState.COOLING_OFF
    return RunState.AUTHORISED


def cancel(*, run: CleanupRun, by: User, reason: str) -> CleanupRun:
    """End a run by a person's decision. Raises LedgerError where it has ended already, or without a reason."""
    if not (by.has_perm("base.approve_run") or by.has_perm("base.operate")):
        raise LedgerError(f"{by} may not cancel runs: that needs the right approve_run or operate.")
    if not reason.strip():
        raise LedgerError("State a reason for cancelling the run.")
    with transaction.atomic():
        locked = CleanupRun.objects.select_for_update(no_key=True).get(pk=run.pk)
        if RunState(locked.state) in RUN_ENDED:
            raise LedgerError(f"{run} has ended already: it is {locked.get_state_display()}.")
        before = locked.state
        CleanupRun.objects.filter(pk=run.pk).update(state=RunState.CANCELLED, ended_at=Now(), end_reason=reason)
        audit.record(
            action="run.cancelled",
            subject=run,
            by=by,
            reason=reason,
            before={"state": before},
            after={"state": RunState.CANCELLED},
        )
    run.refresh_from_db()
    log.info("run cancelled", run=run.key, by=by.get_username())
    return run
