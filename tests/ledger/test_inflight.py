"""What follows the placing of a hold: the report of what was in flight, and the commands that are held."""

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django_q.models import OrmQ

from cleanup_project.base import clock, sqlfiles
from ledger import claim, inflight, sweep, tasks
from ledger.models import CleanupCommand, HoldReport, InFlight, RunTally
from retention.models import LegalHold
from tests.ledger import invariants
from tests.ledger.acting import EPOCH, Acting, build
from tests.world import hold

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> Acting:
    return build()


def held(world: Acting, prefix: str = "") -> LegalHold:
    return hold(world.tenant, world.bucket, prefix, by=world.people["compliance"])


def states() -> dict[str, str]:
    return dict(CleanupCommand.objects.values_list("asset", "state"))


def test_placing_a_hold_rings_for_its_report(world: Acting) -> None:
    placed = held(world)
    messages = [message.task for message in OrmQ.objects.all()]
    assert [message["args"] for message in messages if message["func"] == tasks.hold_placed.name] == [(placed.pk,)]


def test_what_waits_and_is_covered_is_held_in_chunks(world: Acting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflight, "CHUNK", 2)
    world.fill(["a1", "a2", "a3", "b1"])
    run = world.run()
    placed = held(world, "a")
    tasks.hold_placed(placed.pk)
    assert states() == {"a1": "held", "a2": "held", "a3": "held", "b1": "ready"}
    assert set(CleanupCommand.objects.exclude(hold=None).values_list("hold_id", "held_by")) == {(placed.pk, "us")}
    assert sum(RunTally.objects.filter(run=run, outcome="held").values_list("commands", flat=True)) == 3
    report = HoldReport.objects.get()
    assert (report.in_flight, report.marked_at is not None) == (0, True)
    world.drain()
    world.settled()
    run.refresh_from_db()
    assert run.counts == {"held": 3, "deleted": 1}
    invariants.check(world.stores)


def test_a_hold_of_another_class_or_range_marks_nothing(world: Acting) -> None:
    world.put("a")
    world.run()
    inflight.placed(hold(world.tenant, world.bucket, "", by=world.people["compliance"], retention_classes=["x"]).pk)
    inflight.placed(hold(world.tenant, world.bucket, "", by=world.people["compliance"], stored_to=EPOCH).pk)
    assert states() == {"a": "ready"}


def test_a_leased_command_is_in_flight_until_its_outcome(world: Acting) -> None:
    world.fill(["a", "b"])
    world.run()
    claim.claim(world.bucket.pk, world.tenant.pk, [0, 1, 2], 60, 1)
    placed = held(world)
    inflight.placed(placed.pk)
    assert states() == {"a": "ready", "b": "held"}
    flight = InFlight.objects.get()
    assert (flight.token, flight.ended_at) == (1, None)
    assert inflight.ended() == 0
    world.leases_expire()
    world.drain()
    assert inflight.ended() == 1
    flight.refresh_from_db()
    assert flight.ended_as == "held"
    invariants.check(world.stores)


def test_behind_the_barrier_the_targets_of_what_waits_are_not_read(world: Acting) -> None:
    """Every claim of the tenant waits there, for three seconds at the most: it must not matter how many commands wait."""
    world.fill([f"{n:03d}" for n in range(300)])
    world.run()
    claim.claim(world.bucket.pk, world.tenant.pk, [0, 1, 2], 60, 2)
    placed = held(world)
    with transaction.atomic(), connection.cursor() as cursor:
        for way in ("seqscan", "hashjoin", "mergejoin"):  # what the planner takes for a table of this size
            cursor.execute(f"SET LOCAL enable_{way} = off")
        sql = sqlfiles.read(inflight.__file__, "hold_in_flight.sql")
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", {"hold": placed.pk})
        (plan,) = cursor.fetchone()[0]
    assert rows_read(plan["Plan"], "ledger_commandtarget") == 2
    assert inflight.report(placed.pk).in_flight == 2


def rows_read(plan: dict[str, Any], table: str) -> int:
    own = plan["Actual Rows"] * plan["Actual Loops"] if plan.get("Relation Name") == table else 0
    return round(own) + sum(rows_read(each, table) for each in plan.get("Plans", ()))


def test_the_sweep_finds_holds_without_a_report_and_markings_that_stopped(
    world: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = held(world)
    assert inflight.unreported() == [placed.pk]
    OrmQ.objects.all().delete()
    assert sweep.sweep()["holds"] == 1
    assert tasks.hold_placed.name in {message.task["func"] for message in OrmQ.objects.all()}
    inflight.report(placed.pk)
    assert inflight.unreported() == [placed.pk], "reported, and not yet marked"
    inflight.placed(placed.pk)
    assert inflight.unreported() == []


def test_a_marking_that_is_out_of_time_is_gone_on_with(world: Acting) -> None:
    world.fill(["a", "b"])
    world.run()
    report = inflight.report(held(world).pk)
    assert inflight.mark(report, budget_seconds=0) == 0
    assert inflight.unreported() == [report.pk]
    inflight.placed(report.pk)
    assert set(states().values()) == {"held"}
    assert inflight.unreported() == []


def test_a_second_report_is_the_first(world: Acting) -> None:
    placed = held(world)
    first = inflight.placed(placed.pk)
    assert inflight.report(placed.pk).reported_at == first.reported_at


def test_a_report_keeps_what_it_says_and_closes_once(world: Acting) -> None:
    world.put("a")
    world.run()
    claim.claim(world.bucket.pk, world.tenant.pk, [0, 1, 2], 60, 1)
    inflight.placed(held(world).pk)
    world.leases_expire()
    world.drain()
    inflight.ended()
    for change in (
        lambda: HoldReport.objects.update(in_flight=7),
        lambda: HoldReport.objects.update(marked_at=clock.now()),
        lambda: InFlight.objects.update(ended_as="deleted"),
        lambda: InFlight.objects.update(token=9),
        lambda: InFlight.objects.all().delete(),
        lambda: HoldReport.objects.all()._raw_delete("default"),
    ):
        with pytest.raises(DatabaseError), transaction.atomic():
            change()
