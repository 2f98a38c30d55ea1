"""Late evidence: a worker that had lost its lease may have destroyed what was parked meanwhile. Look, and tell the truth."""

from datetime import datetime, timedelta
from typing import Final

import structlog
from django.db import connection, transaction
from django.db.models import Q
from django.db.models.functions import Now

from cleanup_project.base import clock
from ledger import claim, notices, outcomes, settle
from ledger.batch import Batch, Claimed
from ledger.execute import Stores, execute
from ledger.models import CleanupCommand, CleanupRun, DeadLetter, Incident
from ledger.outcomes import Outcome, Verdict
from ledger.states import CommandState
from retention.storage import store_for

PARKED: Final = (CommandState.HELD, CommandState.DEAD, CommandState.WITHDRAWN)
LIMIT: Final = 200
AGAIN: Final = timedelta(minutes=1)

log = structlog.get_logger(__name__)


def look_again(stores: Stores = store_for) -> int:
    """Look at parked commands that late evidence asks about; returns how many had been destroyed by our own hand."""
    asked = CleanupCommand.objects.filter(Q(inspect_due__lte=Now()) & ~Q(state=CommandState.READY), state__in=PARKED)
    found = 0
    for command in asked.order_by("inspect_due")[:LIMIT]:
        found += reconcile(command, stores)
    return found


def reconcile(command: CleanupCommand, stores: Stores = store_for) -> bool:
    """Look at one parked command, and settle what was asked: gone becomes deleted, with an incident; present stays parked."""
    batch = as_batch(command)
    (verdict,) = execute(batch, stores).verdicts
    with transaction.atomic():
        # Before the versions and the command, as everywhere. A run that is being closed counts either all of this or nothing.
        CleanupRun.objects.select_for_update(no_key=True).get(pk=command.run_id)
        if verdict.state is CommandState.DELETED:
            settle.lock_versions([verdict])
        row = CleanupCommand.objects.select_for_update(no_key=True).get(pk=command.pk)
        if seen_of(row) != seen_of(command):
            return False  # somebody else answered, or newer evidence asks again
        if verdict.state is not CommandState.DELETED:
            unseen = verdict.outcome is Outcome.AMBIGUOUS
            settle.note_partly_gone([verdict])
            CleanupCommand.objects.filter(pk=row.pk).update(inspect_due=Now() + AGAIN if unseen else None)
            return False
        entries = record_incident(row, verdict)
        settle.confirm(batch, [verdict], clock.now(), notices.of_quarantine(notices.RESOLVED, entries))
        outcomes.tally_back({(row.run_id, row.state): 1})
    log.error("destroyed after it was parked", command=row.key, state=row.state)
    return True


def seen_of(command: CleanupCommand) -> tuple[datetime | None, str, int, int]:
    return command.inspect_due, command.state, command.cycle, command.run_id


def record_incident(row: CleanupCommand, verdict: Verdict) -> list[int]:
    """Returns the quarantine entry that this has resolved, if there was one."""
    detail = f"Destroyed by a late request of ours while it was {row.state}; its absence was seen on inspection."
    Incident.objects.create(command=row, cycle=row.cycle, from_state=row.state, detail=detail)
    entries = list(DeadLetter.objects.filter(command=row, resolved_at=None).values_list("pk", flat=True))
    DeadLetter.objects.filter(pk__in=entries).update(resolved_at=Now(), resolution=DeadLetter.Resolution.DELETED)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ledger_commandtarget SET active = true WHERE command_id = %s AND NOT active AND NOT EXISTS ("
            "SELECT FROM ledger_commandtarget o WHERE o.object_version_id = ledger_commandtarget.object_version_id "
            "AND o.active)",
            [row.pk],
        )
    return entries


def as_batch(command: CleanupCommand) -> Batch:
    """The command as a batch of one that may only be looked at: it carries no lease, and sends nothing."""
    rows = claim.check([command.pk], command.tenant_id)[command.pk]
    claimed = Claimed(
        id=command.pk,
        key=command.key,
        token=command.lease_token,
        cycle=command.cycle,
        attempts=command.attempts,
        lease_losses=command.lease_losses,
        inspect_due=command.inspect_due,
        taken_over=False,
        run_id=command.run_id,
        item_id=command.item_id,
        policy_id=command.policy_id,
        revision_id=command.revision_id,
        asset=command.asset,
        claims=command.claims,
        targets=[claim.target_of(row) for row in rows],
    )
    now = clock.now()
    return Batch(command.tenant_id, command.bucket_id, 0, now, 0.0, claim.worker_name(), [claimed], 1)
