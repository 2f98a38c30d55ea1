"""Ring again for whatever waits in the ledger. A lost message costs one round of this, and nothing else."""

from collections.abc import Mapping

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from cleanup_project.base import apitokens, jobpace, queue
from cleanup_project.base import rollups as rolling
from ledger import breaker, closing, compare, dispositions, drain, exports, inflight, rollups, runs, stops
from ledger.models import CleanupCommand, CleanupRun
from ledger.states import CommandState, RunState
from retention import lifecycle, preview
from retention.sources import upkeep
from webhooks import outbox
from webhooks import rollups as of_webhooks
from webhooks import sweep as webhooks


def sweep() -> Mapping[str, int]:
    """One round; returns what it found, by name. Also runs outside of the queue, as `manage.py sweep`."""
    return {
        # What stops and ends runs comes first: whatever fails below does not keep a breaker from being judged.
        "tripped": breaker.judge_all(),
        "withdrawn": closing.withdraw(),
        "closed": closing.close_drained(),
        "reckoned": dispositions.reckon_unfinished(),
        "cooled": runs.authorise_cooled(),
        "previewing": ring_each("retention.tasks.preview", preview.unfinished()),
        "freezing": ring_each("ledger.tasks.freeze", unfinished_scans()),
        "publishing": ring_each("ledger.tasks.publish", unpublished_runs()),
        "draining": ring_each("ledger.tasks.drain", drain.due_buckets()),
        "compared": compare.ask_for_waiting(),
        "comparing": ring_each(compare.TASK, compare.unfinished()),
        "late_evidence": ring_each("ledger.tasks.reconcile", [None] if late_evidence() else []),
        "holds": ring_each("ledger.tasks.hold_placed", inflight.unreported()),
        "in_flight_ended": inflight.ended(),
        "stops": ring_each("ledger.tasks.stop_pressed", stops.unreported()),
        "listing": ring_each("retention.tasks.sync", upkeep.due()),
        "lifecycle_conflicts": lifecycle.assess_all(),
        **webhooks.sweep(),
        "keys_forgotten": outbox.forget_details(),
        "bulk_jobs": jobpace.ring(),
        "exports": exports.ring(),
        "tokens_ending": apitokens.watch(),
        "minutes_counted": rolling.count([*rollups.SOURCES, *of_webhooks.SOURCES]),
        # Last, what grows with all that receivers have not acknowledged: nothing waits for it.
        **webhooks.walk(),
        "notified": closing.notify(),
    }


def ring_each(task: str, arguments: list[int] | list[None]) -> int:
    with transaction.atomic():
        for argument in arguments:
            queue.wake(task, argument)
    return len(arguments)


def unfinished_scans() -> list[int]:
    """Runs whose scan nobody has gone on with for a minute."""
    scanning = CleanupRun.objects.filter(state=RunState.SCANNING, opened_at__lt=Now() - queue.TICK_EVERY)
    recent = Q(parts__frozen_at__gt=Now() - queue.TICK_EVERY)
    return list(scanning.exclude(pk__in=scanning.filter(recent).values("pk")).values_list("pk", flat=True))


def unpublished_runs() -> list[int]:
    """Authorised runs, and draining ones of which parts are still to be published."""
    waiting = CleanupRun.objects.filter(state__in=[RunState.AUTHORISED, RunState.DRAINING]).order_by("pk")
    return [run.pk for run in waiting if run.parts.filter(number=run.published_parts + 1).exists()]


def late_evidence() -> bool:
    asked = CleanupCommand.objects.filter(Q(inspect_due__lte=Now()) & ~Q(state=CommandState.READY))
    return asked.exists()
