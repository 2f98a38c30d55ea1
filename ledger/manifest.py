"""Scan pages become frozen parts: exact targets, and why, under a digest.

One transaction a part. It locks the run's row, reads where the last part ended, and goes on from there, so a crash
leaves no gap and a second scheduler no overlap. The empty page seals the manifest.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, LiteralString, NamedTuple

import structlog
from django.db import connection, transaction
from django.db.models import Sum
from django.db.models.functions import Now

from cleanup_project.base import audit, canonical, sqlfiles
from cleanup_project.base.arrays import array
from ledger import caps, notices, runs
from ledger.models import CleanupRun, ManifestPart
from ledger.states import RUN_ENDED, RunState
from retention import enforcement, governing, holds, scan
from retention.governing import Governing
from retention.scan import Page, Stream

log = structlog.get_logger(__name__)

PART_SIZE = 1000
# What freeze.sql returns of the part.
WRITTEN = (
    "id", "run_id", "number", "key", "digest", "item_count", "target_count", "bytes", "read", "held", "not_enforced",
)  # fmt: skip


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
        give_back(run)
        while (part := freeze_part(run)) is not None:
            progress(part.item_count)
        run.refresh_from_db()
        return run


def freeze_slice(run_id: int, *, budget_seconds: float) -> bool:
    """Freeze parts of a run for so long; whether there is nothing left to freeze."""
    until = time.monotonic() + budget_seconds
    run = CleanupRun.objects.select_related("policy", "tenant").get(pk=run_id)
    if not give_back(run, until):
        return False
    while freeze_part(run) is not None:
        if time.monotonic() > until:
            return False
    return True


def give_back(run: CleanupRun, until: float | None = None) -> bool:
    """Before anything is read: what released holds had parked goes back to the scans; whether that is done."""
    return run.policy.erasure or run.parts.exists() or holds.unpark_released(until=until)


def freeze_part(run: CleanupRun) -> ManifestPart | None:
    """Freeze the next part in one transaction; None once the run is sealed or ended.

    Where nothing is left, what the caps are compared with is counted outside of the transaction, and the run is sealed in
    another one that has looked again: for candidates, and for parts that another worker froze while this one was counting.
    """
    measured: Measured | None = None
    while True:
        part, ended = freeze_or_seal(run, measured)
        if part is not None or ended:
            return part
        parts = run.parts.count()
        measured = Measured(parts, caps.measure(run))


class Measured(NamedTuple):
    """What `caps.measure` found of a run that had so many parts."""

    parts: int
    found: dict[str, Any]


def freeze_or_seal(run: CleanupRun, measured: Measured | None) -> tuple[ManifestPart | None, bool]:
    """The next part; or none, and whether the run has ended or is sealed, which takes what was measured of all its parts."""
    with transaction.atomic():
        holds.share_lock(run.tenant_id)
        locked = CleanupRun.objects.select_for_update(no_key=True).values_list("state", "sealed_at")
        state, sealed_at = locked.get(pk=run.pk)
        if sealed_at is not None or RunState(state) in RUN_ENDED:
            return None, True
        number, last = run.parts.order_by("-number").values_list("number", "cursor").first() or (0, {})
        begin = Cursor(**last)
        rules = governing.of_policy(run.policy, run.as_of)
        page = gather(run, rules, begin)
        if page.ids:
            judge = scan.judging(page.ids, scan.lock_versions(page.ids), page.rules, run.as_of)
            return write_part(run, number + 1, page.end, judge), False
        if measured is None or measured.parts != number:
            return None, False
        seal(run, measured.found)
        return None, True


class Gathered(NamedTuple):
    """The versions that a part is made from, the rules that can cover any of them, and where the part after it begins."""

    ids: str
    rules: Sequence[Governing]
    end: Cursor


def gather(run: CleanupRun, rules: Sequence[Governing], begin: Cursor) -> Gathered:
    """The next PART_SIZE candidates, across streams."""
    by_revision = {rule.revision_id: rule for rule in rules}
    pages, streams = list[Page](), list[Stream]()
    number, after, wanted = begin.stream, begin.after, PART_SIZE
    while number < len(run.streams) and wanted:
        if "erasure" in run.streams[number]:
            page = listed(run.streams[number]["erasure"], after, wanted)
        else:
            stream = Stream(**run.streams[number])
            page = scan.page(stream, by_revision[stream.revision_id], run.as_of, after, wanted)
            streams.append(stream)
        pages.append(page)
        if page.size < wanted:
            number, after = number + 1, None
        else:
            after = page.end
        wanted -= page.size
    met = [
        rule
        for rule in rules
        if run.policy.erasure or any(rule.meets(stream.bucket_id, stream.prefix) for stream in streams)
    ]
    return Gathered(scan.joined(pages), met, Cursor(number, after, begin.ordinal))


def listed(request_id: int, after: Sequence[Any] | None, limit: int) -> Page:
    """At most `limit` of the object versions that an erasure request names, after an ordinal."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(array_agg(object_version_id ORDER BY ordinal), '{}')::text, count(*), max(ordinal)::text"
            " FROM (SELECT ordinal, object_version_id FROM ledger_erasuretarget"
            " WHERE request_id = %s AND ordinal > %s::int ORDER BY ordinal LIMIT %s) named",
            [request_id, after[0] if after else 0, limit],
        )
        ids, size, last = cursor.fetchone()
        return Page(ids, size, (last,))


def write_part(run: CleanupRun, number: int, end: Cursor, judge: tuple[LiteralString, dict[str, Any]]) -> ManifestPart:
    """Judge the page and write its items, and the part that sums them up, in one statement.

    `end` is where the next part begins, but for its ordinal: that is still the last one given.
    """
    sql, parameters = judge
    parameters |= {
        "run": run.pk,
        "number": number,
        "key": f"{run.key}:part-{number:04d}",
        "end": json.dumps(end.as_json()),
        "ordinal": end.ordinal,
        "tenant": run.tenant.code,
        "own": array(sorted({stream["revision_id"] for stream in run.streams})),
        "enforced": enforced_places(run),
        "instant": canonical.SQL_INSTANT,
    }
    with connection.cursor() as cursor:
        # The planner takes the page for a handful of rows, and would join its parts by nested loops: ten times slower.
        cursor.execute("SET LOCAL enable_nestloop = off")
        written = sqlfiles.row(sql + sqlfiles.read(__file__, "freeze.sql"), parameters)
        cursor.execute("SET LOCAL enable_nestloop = on")  # the caller's transaction may have more to do
    part = ManifestPart.from_db(connection.alias, WRITTEN, written)
    log.info("part frozen", part=part.key, items=part.item_count, held=part.held, not_enforced=part.not_enforced)
    return part


def enforced_places(run: CleanupRun) -> str | None:
    """Where an enforcing run may destroy, as JSON; None for a dry run, which looks everywhere."""
    if run.mode == CleanupRun.Mode.DRY_RUN:
        return None
    places = enforcement.switched_on(run.tenant_id)
    return json.dumps([{"bucket_id": bucket, "prefix": prefix} for bucket, prefix in places])


def seal(run: CleanupRun, measured: dict[str, Any]) -> None:
    """Fix the manifest: its root over the parts' digests, its counts, and the caps it is over. Under the run's lock."""
    root = sha256()
    for digest in run.parts.order_by("number").values_list("digest", flat=True).iterator(chunk_size=1000):
        root.update(bytes.fromhex(digest))
    sums = run.parts.aggregate(items=Sum("item_count"), targets=Sum("target_count"), bytes=Sum("bytes"))
    items = sums["items"] or 0
    state = runs.state_after_sealing(run, items, over=bool(measured["over"]))
    CleanupRun.objects.filter(pk=run.pk).update(
        state=state,
        sealed_at=Now(),
        manifest_root=root.hexdigest(),
        remaining_root=root.hexdigest(),
        remaining_count=items,
        item_count=items,
        target_count=sums["targets"] or 0,
        bytes=sums["bytes"] or 0,
        guards=run.guards | measured,
        **runs.entering(run, state),
    )
    audit.record(
        action="run.sealed",
        subject=run,
        by=None,
        after={"manifest_root": root.hexdigest(), "items": items, "state": state, "over": measured["over"]},
    )
    tell_of_sealing(run.pk)
    log.info("manifest sealed", root=root.hexdigest(), items=items, state=state, over=len(measured["over"]))


def tell_of_sealing(run_id: int) -> None:
    run = CleanupRun.objects.select_related("policy").get(pk=run_id)
    if run.state == RunState.NEEDS_APPROVAL:
        because = "cap" if run.guards["over"] else "policy"
        notices.tell(run.tenant_id, [notices.needs_approval(run, because)])
    elif run.state == RunState.CLOSED:
        notices.tell(run.tenant_id, [notices.closed(run, RunState.CLOSED, {})])
