"""How old the oldest is of whatever waits in the ledger: the right one, of the right tenants, by an index."""

from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import Max, Min
from django.db.models.functions import Now

from cleanup_project.base import clock, sqlfiles
from ledger import manifest, publish, runs, schedule, vitals
from ledger.models import CleanupCommand, CleanupRun, ManifestItem, ManifestPart, ScheduleSlot
from retention.models import PolicyRevision, RetentionPolicy
from tests.ledger.acting import build

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
ELSEWHERE = ["elsewhere"]


def plan(name: str, **parameters: object) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sqlfiles.read(vitals.__file__, name)}", {"codes": []} | parameters)
        return "\n".join(row[0] for row in cursor.fetchall())


def test_the_oldest_eligible_is_a_ready_command_until_it_is_destroyed() -> None:
    world = build()
    world.put("clips/new", asset="new")
    world.put("clips/old", asset="old", stored_at="2019-01-01T00:00:00Z")
    assert vitals.eligible() is None  # no scan has looked
    world.run()
    found = vitals.eligible()
    oldest = CleanupCommand.objects.earliest("eligible_since")
    assert found == (oldest.pk, None, oldest.eligible_since)
    assert vitals.eligible(["acme"]) == found
    assert vitals.eligible(ELSEWHERE) is None
    world.drain()
    assert vitals.eligible() is None


def test_what_a_sealed_run_has_not_published_is_eligible_too() -> None:
    world = build(authorisation=PolicyRevision.Authorisation.APPROVAL)
    world.put("clips/a", asset="a")
    run, _new = runs.open_run(policy=world.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    run = manifest.freeze(run)
    assert ManifestPart.objects.aggregate(at=Min("oldest"))["at"] == ManifestItem.objects.get().eligible_since
    found = vitals.eligible()
    assert found == (None, run.pk, ManifestItem.objects.get().eligible_since)
    assert vitals.eligible(ELSEWHERE) is None
    number, since = vitals.approvals()
    assert (number, since) == (1, run.sealed_at)
    assert vitals.approvals(ELSEWHERE) == (0, None)
    runs.cancel(run=run, by=world.people["operator"], reason="Wrong month.")
    assert vitals.eligible() is None
    assert vitals.approvals() == (0, None)


def test_a_dry_run_leaves_nothing_eligible() -> None:
    world = build()
    world.put("clips/a", asset="a")
    run, _new = runs.open_run(policy=world.revision.policy, by=None, mode=CleanupRun.Mode.DRY_RUN)
    manifest.freeze(run)
    assert vitals.eligible() is None


def test_the_queue_is_as_old_as_the_command_that_is_due_the_longest_and_that_nobody_has() -> None:
    world = build()
    for name in "ab":
        world.put(f"clips/{name}", asset=name)
    world.run()
    first, second = CleanupCommand.objects.order_by("pk")
    CleanupCommand.objects.filter(pk=second.pk).update(due_at=Now() - DAY)
    found = vitals.due()
    assert found is not None
    assert found.command_id == second.pk
    assert vitals.due(ELSEWHERE) is None
    CleanupCommand.objects.filter(pk=second.pk).update(lease_until=Now() + DAY)
    found = vitals.due()
    assert found is not None
    assert found.command_id == first.pk
    CleanupCommand.objects.update(lease_until=None, due_at=Now() + DAY)
    assert vitals.due() is None


def test_open_runs_say_how_far_they_are() -> None:
    world = build()
    for name in "abc":
        world.put(f"clips/{name}", asset=name)
    run = world.run()
    (found,) = vitals.runs()
    assert (found.id, found.remaining, found.settled, found.dead, found.total) == (run.pk, 3, 0, 0, 1)
    world.drain()
    (found,) = vitals.runs(["acme"])
    assert (found.settled, found.dead) == (3, 0)
    assert vitals.runs(ELSEWHERE) == []
    world.settled()
    assert vitals.runs() == []


def test_what_remains_and_what_is_past_its_deadline_is_counted_wherever_it_stands() -> None:
    world = build(authorisation=PolicyRevision.Authorisation.APPROVAL)
    world.put("clips/old", asset="old", stored_at="2019-01-01T00:00:00Z")
    world.put("clips/new", asset="new", stored_at=clock.now() - 31 * DAY)
    run, _new = runs.open_run(policy=world.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    run = manifest.freeze(run)
    assert (vitals.last_scan(), vitals.last_scan(ELSEWHERE)) == ((run.pk, run.sealed_at), None)
    assert (vitals.past(7 * DAY), vitals.past(DAY / 2), vitals.past(DAY, ELSEWHERE)) == (1, 2, 0)
    runs.approve(run=run, by=world.people["compliance"], root=run.remaining_root, confirmation="2", reason="Looked at.")
    assert (vitals.remaining(), vitals.remaining(ELSEWHERE)) == (2, 0)
    publish.publish(run.pk)
    assert (vitals.past(7 * DAY), vitals.past(DAY / 2)) == (1, 2)
    world.drain()
    assert (vitals.past(DAY / 2), vitals.remaining()) == (0, 0)


def test_missed_slots_are_those_of_a_day() -> None:
    world = build()
    policy = RetentionPolicy.objects.get(pk=world.revision.policy_id)
    assert vitals.missed() == (0, None)
    now = policy.created_at
    schedule.record(policy, [now - 2 * DAY, now - DAY / 2, now - DAY / 4], ScheduleSlot.Outcome.MISSED, "Late.")
    schedule.record(policy, [now - DAY / 8], ScheduleSlot.Outcome.OVERLAP, "Still open.")
    assert vitals.missed() == (2, now - DAY / 4)
    assert vitals.missed(ELSEWHERE) == (0, None)


ROWS = 50_000


@pytest.mark.bulk
def test_each_is_found_by_its_index_however_many_there_are() -> None:
    world = build()
    world.put("clips/a", asset="a")
    world.run()
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            INSERT INTO ledger_cleanupcommand (key, tenant_id, bucket_id, policy_id, revision_id, asset, run_id, item_id,
                target_count, bytes, eligible_since, state, priority, due_at)
            SELECT n, c.tenant_id, c.bucket_id, c.policy_id, c.revision_id, n, c.run_id, c.item_id, 1, 1,
                c.eligible_since - n * interval '1 s', 'ready', 1, now() - n * interval '1 s'
            FROM ledger_cleanupcommand c, generate_series(1, {ROWS}) n
            """
        )
        cursor.execute("ANALYZE")
    assert "command_eligible" in plan("vital_eligible.sql", open=["draining"])
    assert "command_due" in plan("vital_queue.sql")
    eligible, due = vitals.eligible(), vitals.due()
    assert eligible is not None
    assert due is not None
    few = (clock.now() - eligible.since).total_seconds() - 100
    assert "command_eligible" in plan("vital_past.sql", open=["draining"], seconds=few, counted=vitals.PAST_COUNTED)
    assert eligible.command_id == due.command_id == CleanupCommand.objects.aggregate(last=Max("pk"))["last"]
