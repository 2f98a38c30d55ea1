"""What of the ledger is counted minute by minute agrees with the record, and is found by indexes on time."""

from datetime import timedelta

import pytest
from django.db import connection

from cleanup_project.base import clock, rollups
from cleanup_project.base.models import RollupMark
from cleanup_project.base.rollups import SPANS, Source
from ledger import quarantine, sweep
from ledger import rollups as of_ledger
from ledger.models import Attempt, CleanupCommand, CleanupRun, DeadLetter, ManifestPart, Receipt
from ledger.rollups import ATTEMPTS, CANDIDATES, DELETION, DRAIN, PUBLISHED, QUARANTINED, REPLAY_SUCCESS, RESOLVED
from retention.models import ObjectVersion
from retention.storage import VersionRef
from tests.ledger import parking
from tests.ledger.acting import build
from tests.world import sealed_run

pytestmark = pytest.mark.django_db

SPAN = SPANS["1h"]


def count_all() -> None:
    """As if the present minute had closed."""
    now = clock.now()
    for source in of_ledger.SOURCES:
        changed = rollups.count_between(source, now - timedelta(hours=1), now + timedelta(minutes=1))
        if changed:
            rollups.fold(source.metrics, changed[0], changed[-1])


def test_deletions_attempts_and_quarantine_are_counted_by_outcome_and_class() -> None:
    world = build()
    deleted = [parking.deleted(world, f"clips/{n}") for n in range(3)]
    parking.held(world)
    dead = parking.dead(world)
    count_all()
    found = rollups.by_label([DELETION, ATTEMPTS, QUARANTINED], SPAN, ["acme"])
    assert found == {
        DELETION: {"deleted": 3},
        ATTEMPTS: {"deleted": 3, "held": 1, dead.failure_class: 1},
        QUARANTINED: {dead.failure_class: 1},
    }
    assert sum(found[ATTEMPTS].values()) == Attempt.objects.count()
    assert rollups.by_label([DELETION], SPAN, ["other"]) == {DELETION: {}}

    lags = sorted(
        (receipt.issued_at - CleanupCommand.objects.get(pk=receipt.command_id).eligible_since).total_seconds()
        for receipt in Receipt.objects.filter(command_id__in=[each.pk for each in deleted])
    )
    whole = rollups.percentiles(DELETION, SPAN)[0]
    assert (whole.number, whole.greatest) == (3, pytest.approx(lags[-1]))
    assert whole.p50 == pytest.approx(lags[1], rel=rollups.ERROR * 1.001)


def test_what_was_gone_already_is_counted_and_was_not_late() -> None:
    world = build(already_absent="success")
    row = world.put("clips/gone")
    world.run()
    world.store._delete(world.place, VersionRef(row.key, row.version_id))
    ObjectVersion.objects.filter(pk=row.pk).update(listed_at=None)
    world.drain()
    count_all()
    assert rollups.by_label([DELETION], SPAN)[DELETION] == {"already_absent": 1}
    assert rollups.percentiles(DELETION, SPAN) == []


def test_what_was_found_published_replayed_and_ended_is_counted() -> None:
    world = build()
    dead = parking.dead(world)
    quarantine.replay(command=dead, by=world.people["operator"], reason="Repaired.")
    world.due_now()
    world.drain()
    world.settled()
    world.put("clips/looked-at", asset="looked-at")
    sealed_run(world.revision)
    count_all()
    metrics = [CANDIDATES, PUBLISHED, REPLAY_SUCCESS, RESOLVED, DRAIN]
    assert rollups.by_label(metrics, SPAN, ["acme"]) == {
        CANDIDATES: {"enforce": 1, "dry_run": 1},
        PUBLISHED: {"": 1},
        REPLAY_SUCCESS: {"replay": 1},
        RESOLVED: {"replayed": 1},
        DRAIN: {"": CleanupRun.objects.filter(state="closed", mode="enforce").count()},
    }
    assert rollups.percentiles(DRAIN, SPAN)[0].number == 1


def test_the_sweep_counts() -> None:
    build()
    assert sweep.sweep()["minutes_counted"] == 0
    assert {each.source for each in RollupMark.objects.all()} >= {each.name for each in of_ledger.SOURCES}


@pytest.mark.parametrize("source", of_ledger.SOURCES, ids=lambda each: each.name)
def test_a_minute_is_found_by_an_index_on_its_time(source: Source) -> None:
    table, column, index = {
        "receipts": (Receipt, "issued_at", "receipt_issued"),
        "delete attempts": (Attempt, "settled_at", "attempt_by_time"),
        "quarantine": (DeadLetter, "entered_at", "quarantine_by_time"),
        "quarantine resolved": (DeadLetter, "resolved_at", "quarantine_resolved"),
        "manifest parts": (ManifestPart, "frozen_at", "part_by_time"),
        "commands": (CleanupCommand, "published_at", "command_by_publication"),
        "runs": (CleanupRun, "ended_at", "run_by_end"),
    }[source.name]
    fill(table._meta.db_table)
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {source.select}", {"begin": "2026-01-01T12:00Z", "end": "2026-01-01T12:01Z"})
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert index in plan, plan
    assert column in plan


ROWS = 50_000
FILLED = {
    "ledger_receipt": "(command_id, command_key, tenant_id, run_id, outcome, event_id, target_count, bytes, body, digest, "
    "policy_id, bucket_id, issued_at) SELECT n, n, 1, 1, 'deleted', '', 1, 1, 'x', sha256('x'), 1, 1, at",
    "ledger_attempt": "(command_id, token, late, cycle, outcome, charged, failure_class, detail, claimed_at, settled_at, "
    "worker) SELECT n, 1, false, 0, 'deleted', false, '', '', at, at, repeat('w', 60)",
    "ledger_deadletter": "(command_id, cycle, tenant_id, bucket_id, failure_class, attempts, first_error, last_error, "
    "next_action, run_id, policy_id, key, version_id, storage_code, first_failed_at, entered_at, resolved_at, resolution) "
    "SELECT n, 0, 1, 1, 'transient', 1, repeat('e', 100), '', '', 1, 1, 'k', 'v', '', at, at, at, 'adopted'",
    "ledger_manifestpart": "(run_id, number, key, cursor, digest, item_count, target_count, bytes, read, held, "
    "not_enforced, frozen_at) SELECT 1, n, n, '{}', repeat('d', 64), 1, 1, 1, 1, 0, 0, at",
    "ledger_cleanupcommand": "(key, tenant_id, bucket_id, policy_id, revision_id, asset, run_id, item_id, target_count, "
    "bytes, eligible_since, published_at, state, priority) SELECT n, 1, 1, 1, 1, n, 1, n, 1, 1, at, at, 'ready', 1",
    "ledger_cleanuprun": "(key, tenant_id, policy_id, mode, asked_mode, state, as_of, scheduled_for, streams, guards, "
    "manifest_root, remaining_root, authorisation, ended_at, end_reason) "
    "SELECT n, 1, 1, 'enforce', '', 'cancelled', at, at, '[]', '{}', '', '', '', at, 'x'",
}


def fill(table: str) -> None:
    """A row every two seconds from the beginning of 2026; of things that do not exist, which the plan does not mind."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            f"INSERT INTO {table} {FILLED[table]} FROM (SELECT n, '2026-01-01Z'::timestamptz + n * interval '2 s' AS at"
            f" FROM generate_series(1, {ROWS}) n) filled"
        )
        cursor.execute("SET LOCAL session_replication_role = origin")
        cursor.execute(f"ANALYZE {table}")
