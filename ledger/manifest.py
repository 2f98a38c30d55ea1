"""Scan pages become frozen parts: exact targets, and why, under a digest.

One transaction a part. It locks the run's row, reads where the last part ended, and goes on from there, so a crash
leaves no gap and a second scheduler no overlap. The empty page seals the manifest.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, LiteralString

import psycopg
import structlog
from django.db import connection, transaction
from django.db.models import Sum
from django.db.models.functions import Now

from cleanup_project.base import audit, canonical, sqlfiles
from cleanup_project.base.arrays import array
from ledger import runs
from ledger.models import CleanupRun, ManifestPart
from ledger.states import RUN_ENDED, RunState
from retention import enforcement, governing, holds, scan
from retention.governing import Governing
from retention.scan import Candidate, Stream

log = structlog.get_logger(__name__)

PART_SIZE = 1000


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where the next part begins: a stream, the position after which to read it, and the last ordinal given."""

    stream: int = 0
    after: Sequence[Any] | None = None
    ordinal: int = 0

    def as_json(self) -> dict[str, Any]:
        return {"stream": self.stream, "after": self.after, "ordinal": self.ordinal}


def freeze(run: CleanupRun, progress: Callable[[int], object] = lambda items: None) -> CleanupRun:
    """Freeze parts until the manifest is sealed; may be called again, or by another process, wherever it stopped."""
    with structlog.contextvars.bound_contextvars(run=run.key):
        while (part := freeze_part(run.pk)) is not None:
            progress(part.item_count)
        run.refresh_from_db()
        return run


def freeze_part(run_id: int) -> ManifestPart | None:
    """Freeze the next part in one transaction; None once the run is sealed or ended."""
    tenant_id = CleanupRun.objects.values_list("tenant_id", flat=True).get(pk=run_id)
    with transaction.atomic():
        holds.share_lock(tenant_id)
        run = CleanupRun.objects.select_for_update(no_key=True).select_related("policy", "tenant").get(pk=run_id)
        if run.sealed_at is not None or RunState(run.state) in RUN_ENDED:
            return None
        last = run.parts.order_by("-number").first()
        begin = Cursor(**last.cursor) if last else Cursor()
        rules = governing.of_tenant(run.tenant, run.as_of)
        candidates, end = gather(run, rules, begin)
        if not candidates:
            seal(run)
            return None
        ids = [candidate.id for candidate in candidates]
        derivatives = scan.derivatives_of(ids)
        lock_versions([*ids, *derivatives])
        judge = scan.judging(ids, derivatives, rules, run.as_of)
        return write_part(run, last.number + 1 if last else 1, begin, end, judge)


def gather(run: CleanupRun, rules: Sequence[Governing], begin: Cursor) -> tuple[list[Candidate], Cursor]:
    """The next PART_SIZE candidates, across streams, and where the part after them begins."""
    by_revision = {rule.revision_id: rule for rule in rules}
    found: list[Candidate] = []
    stream, after = begin.stream, begin.after
    while stream < len(run.streams) and len(found) < PART_SIZE:
        current = Stream(**run.streams[stream])
        wanted = PART_SIZE - len(found)
        page = scan.page(current, by_revision[current.revision_id], run.as_of, after, wanted)
        found += page
        if len(page) < wanted:
            stream, after = stream + 1, None
        else:
            after = page[-1].position
    return found, Cursor(stream, after, begin.ordinal)


def lock_versions(ids: Sequence[int]) -> None:
    """Lock versions in id order, so that what is judged next cannot change before it is frozen."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT FROM retention_objectversion WHERE id = ANY(%s::bigint[]) ORDER BY id FOR NO KEY UPDATE",
            [array(ids)],
        )


def write_part(
    run: CleanupRun, number: int, begin: Cursor, end: Cursor, judge: tuple[LiteralString, dict[str, Any]]
) -> ManifestPart:
    """Judge the page and write its items in one statement, then the part that sums them up."""
    sql, parameters = judge
    part = ManifestPart(run=run, number=number, key=f"{run.key}:part-{number:04d}")
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval(pg_get_serial_sequence('ledger_manifestpart', 'id'))")
        part.pk = cursor.fetchone()[0]
        # The planner takes the page for a handful of rows, and would join its parts by nested loops: ten times slower.
        cursor.execute("SET LOCAL enable_nestloop = off")
    # Prepared on the server: planning would take a tenth of the time.
    with psycopg.Cursor(connection.connection) as prepared:
        prepared.execute(
            sql + sqlfiles.read(__file__, "freeze.sql"),
            parameters
            | {
                "run": run.pk,
                "part": part.pk,
                "ordinal": begin.ordinal,
                "tenant": run.tenant.code,
                "own": array(sorted({stream["revision_id"] for stream in run.streams})),
                "enforced": enforced_places(run),
                "instant": canonical.SQL_INSTANT,
            },
            prepare=True,
        )
        counts = prepared.fetchone()
    assert counts is not None
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_nestloop = on")  # the caller's transaction may have more to do
    part.item_count, part.target_count, part.bytes, part.digest, part.read, part.held, part.not_enforced = counts
    part.cursor = Cursor(end.stream, end.after, begin.ordinal + part.item_count).as_json()
    part.save(force_insert=True)
    log.info("part frozen", part=part.key, items=part.item_count, held=part.held, not_enforced=part.not_enforced)
    return part


def enforced_places(run: CleanupRun) -> str | None:
    """Where an enforcing run may destroy, as JSON; None for a dry run, which looks everywhere."""
    if run.mode == CleanupRun.Mode.DRY_RUN:
        return None
    places = enforcement.switched_on(run.tenant_id)
    return json.dumps([{"bucket_id": bucket, "prefix": prefix} for bucket, prefix in places])


def seal(run: CleanupRun) -> None:
    """Fix the manifest: its root over the parts' digests, and its counts. Called under the run's lock."""
    root = sha256()
    for digest in run.parts.order_by("number").values_list("digest", flat=True).iterator(chunk_size=1000):
        root.update(bytes.fromhex(digest))
    sums = run.parts.aggregate(items=Sum("item_count"), targets=Sum("target_count"), bytes=Sum("bytes"))
    items = sums["items"] or 0
    state = runs.state_after_sealing(run, items)
    CleanupRun.objects.filter(pk=run.pk).update(
        state=state,
        sealed_at=Now(),
        manifest_root=root.hexdigest(),
        item_count=items,
        target_count=sums["targets"] or 0,
        bytes=sums["bytes"] or 0,
        **runs.entering(run, state),
    )
    audit.record(
        action="run.sealed",
        subject=run,
        by=None,
        after={"manifest_root": root.hexdigest(), "items": items, "state": state},
    )
    log.info("manifest sealed", root=root.hexdigest(), items=items, state=state)
