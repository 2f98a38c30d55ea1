"""Who is claimed when: by an index at any size, urgent before old, every tenant, suspects alone, not above the limit."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction

from cleanup_project.base import sqlfiles
from ledger import claim
from ledger import drain as draining
from ledger.models import CleanupCommand, Turn
from retention.models import Bucket, Tenant
from tests.ledger.acting import build
from tests.ledger.folder import FolderStore
from tests.ledger.processes import Say, worker

TYPES = {
    "bucket": "bigint",
    "tenant": "bigint",
    "n": "int",
    "lease": "int",
    "order": "smallint[]",
    "paused": "bigint[]",
    "suspended": "bigint[]",
    "shut": "bigint[]",
    "stopped": "boolean",
    "idle": "bigint[]",
    "suspect_after": "int",
    "suspects": "boolean",
    "oldest_every": "int",
}


def commands(tenant: Tenant, bucket: Bucket, number: int, *, priority: int, due: str = "now()") -> None:
    """Bare commands, without targets: what claims read. `due` is SQL over n, which counts from 1."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            INSERT INTO ledger_cleanupcommand (
                key, tenant_id, bucket_id, policy_id, revision_id, asset, run_id, item_id, target_count, bytes,
                eligible_since, state, priority, due_at
            )
            SELECT %s || ':' || %s || ':' || n, %s, %s, 0, 0, 'a', 0, 0, 0, 0, now(), 'ready', %s, {due}
            FROM generate_series(1, %s) n
            """,
            [tenant.code, priority, tenant.pk, bucket.pk, priority, number],
        )
    Turn.objects.get_or_create(tenant=tenant, bucket=bucket)


def one(bucket: Bucket) -> CleanupCommand:
    """What one turn claims when it takes a single command."""
    turn = claim.next_turn(bucket.pk)
    assert turn is not None
    batch = claim.claim(bucket.pk, *turn, 60, 1)
    assert len(batch.commands) == 1
    return CleanupCommand.objects.get(pk=batch.commands[0].id)


def explained(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """The plan that a statement is executed by, when PostgreSQL no longer looks at its parameters."""
    text = sqlfiles.read(claim.__file__, name)
    for place, each in enumerate(parameters, 1):
        text = text.replace(f"%({each})s", f"${place}")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        cursor.execute(f"PREPARE asked ({', '.join(TYPES[each] for each in parameters)}) AS {text}")
        try:
            values = ", ".join(["%s"] * len(parameters))
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE asked ({values})", list(parameters.values()))
            found = cursor.fetchone()[0]
        finally:
            cursor.execute("DEALLOCATE asked")
            transaction.set_rollback(True)
    return (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan.get("Plans", ()):
        yield from nodes(each)


def read_of_commands(plan: dict[str, Any]) -> tuple[set[str], int]:
    """By which indexes the table of commands was read, and how many of its rows were looked at."""
    ours = [each for each in nodes(plan) if each.get("Relation Name") == "ledger_cleanupcommand"]
    scans = [each for each in ours if "Scan" in each["Node Type"]]
    rows = sum((each["Actual Rows"] + each.get("Rows Removed by Filter", 0)) * each["Actual Loops"] for each in scans)
    return {each.get("Index Name", each["Node Type"]) for each in scans}, round(rows)


@pytest.mark.bulk
@pytest.mark.django_db
def test_a_claim_reads_the_partial_index_however_many_commands_are_not_due(tenant: Tenant, bucket: Bucket) -> None:
    other = Tenant.objects.create(code="other", name="Other")
    commands(tenant, bucket, 10_000, priority=1, due="now() - n * interval '1 s'")
    commands(tenant, bucket, 60_000, priority=2, due="now() + n * interval '1 s'")
    commands(other, bucket, 30_000, priority=1, due="now() + n * interval '1 s'")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    claimed = {
        "bucket": bucket.pk,
        "tenant": tenant.pk,
        "n": 500,
        "lease": 300,
        "order": [0, 1, 2],
        "paused": [],
        "suspended": [],
        "shut": [],
        "stopped": False,
        "suspect_after": 2,
        "suspects": False,
    }
    indexes, rows = read_of_commands(explained("claim.sql", claimed))
    assert indexes == {"command_due", "ledger_cleanupcommand_pkey"}
    assert rows <= 2 * 500, "each is found once, and updated once"
    indexes, rows = read_of_commands(explained("turn.sql", {"bucket": bucket.pk, "oldest_every": 10, "idle": []}))
    assert indexes == {"command_due"}
    assert rows <= 6, "one head for each tenant and priority"


@pytest.mark.django_db
def test_urgent_commands_overtake_and_every_tenth_turn_takes_the_oldest(tenant: Tenant, bucket: Bucket) -> None:
    commands(tenant, bucket, 30, priority=0)
    commands(tenant, bucket, 5, priority=2, due="now() - interval '1 day'")
    taken = [one(bucket).priority for _ in range(20)]
    assert taken == [*[0] * 9, 2, *[0] * 9, 2]


@pytest.mark.django_db
def test_tenants_take_turns(tenant: Tenant, bucket: Bucket) -> None:
    other = Tenant.objects.create(code="other", name="Other")
    commands(tenant, bucket, 20, priority=1, due="now() - interval '1 day'")
    commands(other, bucket, 3, priority=1)
    taken = [one(bucket).tenant_id for _ in range(6)]
    assert sorted(taken) == sorted([tenant.pk, other.pk] * 3)
    assert taken[0] != taken[1] != taken[2] != taken[3]


@pytest.mark.django_db
def test_a_tenant_with_urgent_work_without_end_does_not_starve_another(tenant: Tenant, bucket: Bucket) -> None:
    other = Tenant.objects.create(code="other", name="Other")
    commands(tenant, bucket, 40, priority=0)
    commands(other, bucket, 3, priority=2)
    taken = [one(bucket).tenant_id for _ in range(30)]
    assert taken.count(other.pk) == 3


@pytest.mark.django_db
def test_commands_that_have_lost_two_workers_are_claimed_alone(tenant: Tenant, bucket: Bucket) -> None:
    commands(tenant, bucket, 5, priority=1)
    suspects = set(CleanupCommand.objects.order_by("pk").values_list("pk", flat=True)[:2])
    CleanupCommand.objects.filter(pk__in=suspects).update(lease_losses=2)
    batches = []
    for _ in range(3):
        turn = claim.next_turn(bucket.pk)
        assert turn is not None
        batches.append({each.id for each in claim.claim(bucket.pk, *turn, 60).commands})
    assert [len(batch) for batch in batches] == [3, 1, 1]
    assert batches[1] | batches[2] == suspects


@pytest.mark.django_db(transaction=True)
def test_drains_together_are_never_faster_than_the_limit_even_if_one_is_killed(tmp_path: Path) -> None:
    limit, seconds = 100, 8.0
    world = build(FolderStore(tmp_path / "store"))
    Bucket.objects.filter(pk=world.bucket.pk).update(keys_per_second=limit)
    world.fill([f"{n:04}" for n in range(1500)])
    world.run()
    begun = time.time()

    def work(say: Say) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            draining.drain(world.bucket.pk, stores=world.stores, budget_seconds=left)

    def killed(say: Say) -> None:
        world.store.between = lambda gone: gone == limit // 2 and os.kill(os.getpid(), signal.SIGKILL)
        work(say)

    with ExitStack() as started:
        victim = started.enter_context(worker(killed))
        others = [started.enter_context(worker(work)) for _ in range(4)]
        assert victim.ended() == -signal.SIGKILL
        assert [child.ended() for child in others] == [0] * 4
    sent = sorted(world.store.requests())
    assert sum(keys for _at, keys in sent) >= 2 * limit, "they did work"
    for place, (at, _keys) in enumerate(sent):
        so_far = sum(keys for _at, keys in sent[: place + 1])
        assert so_far <= limit * (at - begun) + limit, f"{so_far} keys after {at - begun:.1f} s"
