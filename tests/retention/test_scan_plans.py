"""What a scan costs: pages read by index, following what is due and neither the catalogue's size nor what is held."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from cleanup_project.base.models import User
from cleanup_project.operations.bench.world import add_originals
from ledger import manifest, runs
from ledger.models import CleanupRun
from retention import census, governing, holds, scan
from retention.models import Bucket, ObjectVersion, RetentionPolicy, Tenant
from tests.world import event, hold, published, release

pytestmark = [pytest.mark.django_db, pytest.mark.bulk]

HUGE = 1_000_000
LARGE = 200_000
DUE = "now() - interval '400 days' - n * interval '1 s'"
RECENT = "now() - interval '20 days' * random()"


@pytest.fixture(scope="module", autouse=True)
def swept_up(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Millions of rows were rolled back: their indexes stay so large that the planner avoids them, and full of the dead."""
    yield
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("VACUUM FULL retention_objectversion")


@pytest.fixture
def made(tenant: Tenant, bucket: Bucket) -> tuple[Tenant, Bucket]:
    return tenant, bucket


# Policies are published before their catalogues are filled: a preview would count the whole of these.
def policy_over(prefix: str, made: tuple[Tenant, Bucket], manager: User, second_manager: User) -> RetentionPolicy:
    return published(*made, author=manager, publisher=second_manager, prefixes=[prefix]).policy


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def explained(sql: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT json) {sql}", parameters)
        found = cursor.fetchone()[0]
    return list(nodes((found if isinstance(found, list) else json.loads(found))[0]["Plan"]))


def first_page(policy: RetentionPolicy) -> tuple[scan.Stream, list[dict[str, Any]]]:
    run, _ = runs.open_run(policy=policy, by=None, mode=CleanupRun.Mode.DRY_RUN)
    rules = governing.of_tenant(policy.tenant, run.as_of)
    (stream,) = [scan.Stream(**each) for each in run.streams]
    return stream, explained(*scan.page_query(stream, rules[0], run.as_of, None, 1000))


def rows_read(plan: list[dict[str, Any]]) -> int:
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in plan
        if node.get("Relation Name") == "retention_objectversion"
    )


def analyse() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def planner_knows(what: str) -> None:
    """Of the catalogue: all, nothing, or that it was empty (as a VACUUM leaves it that came before the first rows)."""
    if what == "all":
        analyse()
        return
    tuples, pages = (-1, 0) if what == "nothing" else (0, 1000)
    with connection.cursor() as cursor:
        cursor.execute("LOCK TABLE retention_objectversion IN SHARE UPDATE EXCLUSIVE MODE")  # keeps autovacuum away
        cursor.execute("DELETE FROM pg_statistic WHERE starelid = 'retention_objectversion'::regclass")
        cursor.execute(
            "UPDATE pg_class SET reltuples = %s, relpages = %s WHERE oid = 'retention_objectversion'::regclass"
            " OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'retention_objectversion'::regclass)",
            [tuples, pages],
        )


def test_a_census_reads_no_more_than_a_page_at_a_time(
    made: tuple[Tenant, Bucket], manager: User, second_manager: User
) -> None:
    policy = policy_over("media/0", made, manager, second_manager)
    add_originals(*made, first=1, last=LARGE, stored_at=RECENT)
    analyse()
    (rule,) = governing.of_tenant(policy.tenant, timezone.now())
    after = ("media/050000", "", "")
    plan = explained(*census.page_query(rule, timezone.now(), made[1].pk, "media/0", after))
    assert rows_read(plan) == census.PAGE


def test_a_huge_catalogue_that_is_not_due_costs_nothing(
    made: tuple[Tenant, Bucket], manager: User, second_manager: User
) -> None:
    policy = policy_over("", made, manager, second_manager)
    add_originals(*made, first=1, last=50, stored_at=DUE)
    add_originals(*made, first=51, last=LARGE, stored_at=RECENT)
    analyse()
    stream, plan = first_page(policy)
    assert not stream.by_key
    assert {node.get("Index Name") for node in plan} & {"scan_by_stored_at"}
    assert rows_read(plan) == 50


def test_a_small_prefix_in_a_huge_due_bucket_is_read_by_its_keys(
    made: tuple[Tenant, Bucket], manager: User, second_manager: User
) -> None:
    policy = policy_over("small/", made, manager, second_manager)
    add_originals(*made, first=1, last=LARGE, stored_at=DUE)
    add_originals(*made, first=LARGE + 1, last=LARGE + 100, stored_at=DUE, prefix="small/")
    analyse()
    stream, plan = first_page(policy)
    assert stream.by_key
    assert rows_read(plan) == 100


def test_a_million_held_versions_are_in_the_way_once(
    made: tuple[Tenant, Bucket], manager: User, second_manager: User, compliance: User
) -> None:
    """The scan that meets a held version parks it; the million here is as earlier scans left it."""
    tenant, bucket = made
    placed = holds.place(
        tenant=tenant,
        matter="M",
        title="T",
        authority="A",
        reason="R",
        buckets=[bucket],
        prefixes=["held/"],
        retention_classes=["*"],
        by=compliance,
    )
    policy = policy_over("", made, manager, second_manager)
    add_originals(*made, first=1, last=HUGE, stored_at=DUE, prefix="held/", parked_by=placed)
    add_originals(*made, first=HUGE + 1, last=HUGE + 700, stored_at=DUE, prefix="held/")
    add_originals(*made, first=HUGE + 1, last=HUGE + 100, stored_at=DUE, prefix="free/")
    analyse()
    run, _ = runs.open_run(policy=policy, by=None, mode=CleanupRun.Mode.DRY_RUN)
    run = manifest.freeze(run)
    assert (run.item_count, run.parts.get().held, run.parts.get().read) == (100, 700, 800)
    assert ObjectVersion.objects.filter(parked_by=placed).count() == HUGE + 700

    _stream, plan = first_page(policy)
    assert rows_read(plan) == 100


@pytest.mark.parametrize("parked_by", ["nobody", "a hold in force", "a released hold"])
@pytest.mark.parametrize("known", ["all", "nothing", "that it was empty"])
def test_giving_back_reads_what_released_holds_had_parked_and_nothing_else(
    parked_by: str, known: str, made: tuple[Tenant, Bucket], compliance: User
) -> None:
    in_force, released = (hold(*made, f"{matter}/", by=compliance, matter=matter) for matter in ("stays", "goes"))
    release(released)
    half = LARGE // 10
    add_originals(*made, first=1, last=half, stored_at=RECENT)
    by = {"a hold in force": in_force, "a released hold": released}.get(parked_by)
    add_originals(*made, first=half + 1, last=2 * half, stored_at=RECENT, prefix="parked/", parked_by=by)
    planner_knows(known)
    plans = list[list[dict[str, Any]]]()

    def explaining(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        if "given_back" in sql:
            execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT json) {sql}", parameters, many, context)
            plans.append(list(nodes(context["cursor"].fetchone()[0][0]["Plan"])))  # and a chunk was given back
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(explaining):
        more = holds.unpark_chunk()
    given = 1000 if parked_by == "a released hold" else 0
    assert more == bool(given)
    assert ObjectVersion.objects.filter(parked_by=None).count() == (half + 2 * given if by else 2 * half)
    assert rows_read(plans[0]) <= 4 * given + bool(given), "one looked for, a chunk read, found by key and written"
    with connection.cursor() as cursor:
        cursor.execute("SHOW enable_sort")
        assert cursor.fetchone() == ("on",), "the transaction goes on"


def test_what_events_cover_is_read_by_its_keys_and_nothing_else(
    made: tuple[Tenant, Bucket], manager: User, second_manager: User
) -> None:
    waiting = {"trigger": "event", "event_type": "contract-ended"}
    policy = published(*made, author=manager, publisher=second_manager, **waiting).policy
    add_originals(*made, first=1, last=LARGE, stored_at=DUE)
    add_originals(*made, first=LARGE + 1, last=LARGE + 100, stored_at=DUE, prefix="ended/")
    analyse()
    event(*made, "ended/", by=manager)
    stream, plan = first_page(policy)
    assert (stream.by_key, stream.prefix) == (True, "ended/")
    assert rows_read(plan) == 100


def test_judging_a_page_probes_indexes_and_never_walks_a_table(
    made: tuple[Tenant, Bucket], manager: User, second_manager: User
) -> None:
    policy = policy_over("", made, manager, second_manager)
    add_originals(*made, first=1, last=LARGE, stored_at=DUE)
    analyse()
    run, _ = runs.open_run(policy=policy, by=None, mode=CleanupRun.Mode.DRY_RUN)
    rules = governing.of_tenant(policy.tenant, run.as_of)
    (stream,) = [scan.Stream(**each) for each in run.streams]
    ids = scan.page(stream, rules[0], run.as_of, None, 1000).ids
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_nestloop = off")
    judge, parameters = scan.judging(ids, scan.lock_versions(ids), rules, run.as_of)
    plan = explained(judge + "SELECT * FROM verdict", parameters)
    assert not [node for node in plan if node["Node Type"] == "Seq Scan" and node["Relation Name"].endswith("version")]
    assert rows_read(plan) <= 2 * 1000
