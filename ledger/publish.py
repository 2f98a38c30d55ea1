"""Publish commands from a run's items, part by part, once its root is recorded and it is authorised."""

from dataclasses import dataclass
from typing import Any, Final

import structlog
from django.db import connection, transaction

from cleanup_project.base import audit, queue, sqlfiles
from ledger import notices, pace
from ledger.models import CleanupCommand, CleanupRun, ManifestPart
from ledger.states import CommandState, RunState
from retention import holds
from retention.models import Bucket

AHEAD = 50  # parts whose commands may be ready at a time, so that a pause or a hold acts fast
PUBLISHING: Final = frozenset({RunState.AUTHORISED, RunState.DRAINING})

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Published:
    """What became of one part's items: new commands, commands adopted from earlier runs, items left out."""

    part: str
    created: int
    adopted: int
    skipped: int


def publish(run_id: int) -> list[Published]:
    """Publish as many parts as may be ahead."""
    done = list[Published]()
    while (part := publish_part(run_id)) is not None:
        done.append(part)
    return done


def publish_part(run_id: int) -> Published | None:
    """Publish the next part in one transaction; None where nothing is left, enough is ahead, or workers have some of it.

    Locks in the product's order: the tenant's hold lock, the run, object versions by id, commands by id.
    """
    tenant_id, policy_id = CleanupRun.objects.values_list("tenant_id", "policy_id").get(pk=run_id)
    with transaction.atomic():
        holds.share_lock(tenant_id)
        run = CleanupRun.objects.select_for_update(no_key=True).get(pk=run_id)
        part = next_part(run)
        if part is None:
            return None
        last: int = part.cursor["ordinal"]
        first = last - part.item_count + 1
        if in_hand(run, first, last):
            return None
        scope: dict[str, Any] = {
            "run": run.pk,
            "part": part.pk,
            "tenant": tenant_id,
            "policy": policy_id,
            "as_of": run.as_of,
            "first": first,
            "last": last,
        }
        with connection.cursor() as cursor:
            cursor.execute(sqlfiles.read(__file__, "lock_targets.sql"), scope)
            cursor.execute(sqlfiles.read(__file__, "publish.sql"), scope)
            created, adopted, skipped, buckets = cursor.fetchone()
        resolved = adopt(run, adopted) if adopted else []
        begin_draining(run, part)
        make_ready(tenant_id, buckets or [])
        notices.tell(tenant_id, notices.of_quarantine(notices.RESOLVED, resolved) if resolved else [])
    log.info("part published", part=part.key, created=created, adopted=len(adopted or ()), skipped=skipped)
    return Published(part.key, created, len(adopted or ()), skipped)


def adopt(run: CleanupRun, adopted: list[list[int]]) -> list[int]:
    """Begin the next cycle of commands under this run; returns the quarantine entries that this has resolved."""
    ids, items, priorities, anew = (list(column) for column in zip(*adopted, strict=True))
    with connection.cursor() as cursor:
        cursor.execute(
            sqlfiles.read(__file__, "adopt.sql"),
            {"run": run.pk, "id": ids, "item": items, "priority": priorities, "anew": anew},
        )
        return list(cursor.fetchone()[0] or ())


def next_part(run: CleanupRun) -> ManifestPart | None:
    if RunState(run.state) not in PUBLISHING:
        return None
    ready = CleanupCommand.objects.filter(run=run, state=CommandState.READY)[: AHEAD * 1000].count()
    if ready > (AHEAD - 1) * 1000:
        return None
    return run.parts.filter(number=run.published_parts + 1).first()


def in_hand(run: CleanupRun, first: int, last: int) -> bool:
    """Whether workers have commands of an earlier run, which was cancelled, that these items could take over.

    They end within their leases. One that is claimed after this look is left to the run it was claimed under (publish.sql).
    """
    keys = run.items.filter(ordinal__range=(first, last)).values("command_key")
    leased = CleanupCommand.objects.filter(state=CommandState.READY, lease_until__isnull=False)
    return leased.filter(key__in=keys).exists()


def begin_draining(run: CleanupRun, part: ManifestPart) -> None:
    CleanupRun.objects.filter(pk=run.pk).update(published_parts=part.number, state=RunState.DRAINING)
    if run.state == RunState.AUTHORISED:
        audit.record(action="run.draining", subject=run, by=None, before={"state": run.state})


def make_ready(tenant_id: int, bucket_ids: list[int]) -> None:
    """Rows that the claim needs, and a bell for each bucket, in the transaction that gives it work."""
    for bucket in Bucket.objects.filter(pk__in=bucket_ids).order_by("pk"):
        pace.prepare(bucket)
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO ledger_turn (bucket_id, tenant_id) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                [bucket.pk, tenant_id],
            )
        queue.wake("ledger.tasks.drain", bucket.pk)
