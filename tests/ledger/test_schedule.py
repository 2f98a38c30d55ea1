"""Each slot of a schedule gets one answer, whoever asks, how often, and how late."""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.db import DatabaseError, connection, connections, transaction
from django_q.models import OrmQ

from cleanup_project.base.models import User
from ledger import runs, schedule
from ledger.models import CleanupRun, ScheduleSlot
from retention import policies
from retention.models import Bucket, RetentionPolicy, Tenant
from tests.world import published, version

pytestmark = pytest.mark.django_db

Outcome = ScheduleSlot.Outcome


def database_time() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


def newest_slot() -> datetime:
    """Half a day ago, and the next half a day ahead: no test meets one as it passes."""
    return (database_time() - timedelta(hours=12)).replace(minute=0, second=0, microsecond=0)


def begun(policy: RetentionPolicy, *, days_ago: int) -> None:
    """As if the scheduler had answered the last slot so many days before the newest one."""
    ScheduleSlot.objects.create(
        policy=policy,
        scheduled_for=newest_slot() - timedelta(days=days_ago),
        outcome=Outcome.MISSED,
        reason="Made by the test.",
    )


def make_daily(policy: RetentionPolicy) -> RetentionPolicy:
    RetentionPolicy.objects.filter(pk=policy.pk).update(schedule=f"0 {newest_slot().hour} * * *")
    policy.refresh_from_db()
    return policy


def answers(policy: RetentionPolicy) -> list[str]:
    return list(policy.slots.order_by("scheduled_for").values_list("outcome", flat=True))[1:]


@pytest.fixture
def policy(tenant: Tenant, bucket: Bucket, manager: User, second_manager: User) -> RetentionPolicy:
    version(bucket, tenant, "o/1")
    return make_daily(published(tenant, bucket, author=manager, publisher=second_manager).policy)


def test_a_due_slot_opens_one_run_and_rings_for_it_and_the_next_tick_opens_none(policy: RetentionPolicy) -> None:
    begun(policy, days_ago=1)
    slot = newest_slot()
    (run,) = schedule.tick()
    assert (run.policy, run.scheduled_for) == (policy, slot)
    assert run.as_of > slot  # judged when it opened, not when it was due
    assert run.slot.scheduled_for == slot
    assert [(each.task["func"], each.task["args"]) for each in OrmQ.objects.all()] == [(schedule.FREEZE, (run.pk,))]
    assert schedule.tick() == []
    assert answers(policy) == [Outcome.OPENED]
    assert OrmQ.objects.count() == 1


def test_the_slot_that_has_waited_the_longest_for_its_answer_is_found(policy: RetentionPolicy) -> None:
    begun(policy, days_ago=2)
    assert schedule.unanswered() == (policy, newest_slot() - timedelta(days=1))
    assert schedule.unanswered([policy.tenant.code]) == schedule.unanswered()
    assert schedule.unanswered(["elsewhere"]) is None
    schedule.tick()
    assert schedule.unanswered() is None


def test_missed_slots_are_recorded_and_one_run_makes_up_for_them(policy: RetentionPolicy) -> None:
    begun(policy, days_ago=4)
    slot = newest_slot()
    (run,) = schedule.tick()
    assert run.scheduled_for == slot
    assert answers(policy) == [Outcome.MISSED] * 3 + [Outcome.OPENED]


def test_missed_slots_are_recorded_and_skipped_where_the_policy_says_so(
    policy: RetentionPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(policy, days_ago=4)
    RetentionPolicy.objects.update(missed_slots=RetentionPolicy.MissedSlots.SKIP)
    monkeypatch.setattr(schedule, "GRACE", timedelta(0))
    assert schedule.tick() == []
    assert answers(policy) == [Outcome.MISSED] * 4


def test_a_slot_within_the_grace_is_not_missed(policy: RetentionPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(policy, days_ago=4)
    RetentionPolicy.objects.update(missed_slots=RetentionPolicy.MissedSlots.SKIP)
    monkeypatch.setattr(schedule, "GRACE", timedelta(days=1))
    assert len(schedule.tick()) == 1
    assert answers(policy) == [Outcome.MISSED] * 3 + [Outcome.OPENED]


def test_a_slot_that_meets_an_open_run_is_recorded_as_overlap(policy: RetentionPolicy) -> None:
    busy, _new = runs.open_run(policy=policy, by=None)
    begun(policy, days_ago=1)
    assert schedule.tick() == []
    assert answers(policy) == [Outcome.OVERLAP]
    assert busy.key in policy.slots.latest("scheduled_for").reason


def test_a_suspended_policy_opens_nothing_and_makes_up_for_nothing(
    policy: RetentionPolicy, manager: User, second_manager: User
) -> None:
    begun(policy, days_ago=2)
    policies.suspend(policy=policy, by=second_manager, reason="Under review.")
    assert schedule.tick() == []
    assert answers(policy) == [Outcome.REFUSED] * 2
    policies.resume(policy=policy, by=manager, reason="Reviewed.")
    assert schedule.tick() == []


def test_slots_of_a_new_schedule_count_from_its_change(policy: RetentionPolicy, manager: User) -> None:
    begun(policy, days_ago=2)
    policies.reschedule(policy=policy, schedule="* * * * *", missed_slots="run_once", by=manager, reason="Sooner.")
    assert schedule.tick() == []
    RetentionPolicy.objects.update(rescheduled_at=database_time() - timedelta(minutes=3))
    assert len(schedule.tick()) == 1
    assert set(answers(policy)) == {Outcome.MISSED, Outcome.OPENED}
    assert len(answers(policy)) <= 4


def test_a_policy_without_a_revision_in_force_has_no_slots(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    policies.create(tenant=tenant, code="empty", by=manager, schedule="* * * * *")
    later = database_time() + timedelta(days=400)
    published(tenant, bucket, author=manager, publisher=second_manager, effective_from=later)
    RetentionPolicy.objects.update(schedule="* * * * *")
    assert schedule.tick() == []
    assert not ScheduleSlot.objects.exists()


def test_slots_count_from_the_publication_and_not_from_an_earlier_effective_date(policy: RetentionPolicy) -> None:
    assert policy.revisions.get().effective_from < newest_slot()
    assert schedule.due_slots(policy)[0] == []


@pytest.mark.parametrize("expression", ["61 * * * *", "", "0 0 30 2 *", "never"])
def test_a_schedule_that_cannot_be_read_stops_no_other(
    policy: RetentionPolicy, tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, expression: str
) -> None:
    sound = make_daily(published(tenant, bucket, author=manager, publisher=second_manager).policy)
    begun(sound, days_ago=1)
    begun(policy, days_ago=1)
    RetentionPolicy.objects.filter(pk=policy.pk).update(schedule=expression)
    assert policy.pk < sound.pk
    assert [run.policy for run in schedule.tick()] == [sound]


def test_slots_are_append_only_and_say_why_they_opened_nothing(policy: RetentionPolicy) -> None:
    begun(policy, days_ago=1)
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        ScheduleSlot.objects.update(reason="Changed.")
    with pytest.raises(DatabaseError, match="slot_opened_or_why_not"), transaction.atomic():
        ScheduleSlot.objects.create(
            policy=policy, scheduled_for=datetime(2026, 1, 1, tzinfo=UTC), outcome=Outcome.MISSED
        )


@pytest.mark.django_db(transaction=True)
def test_many_ticks_at_once_open_one_run(policy: RetentionPolicy) -> None:
    begun(policy, days_ago=3)
    gate = threading.Barrier(4)
    failures: list[Exception] = []

    def ask() -> None:
        try:
            gate.wait()
            schedule.tick()
        except Exception as error:  # noqa: BLE001 - handed to the test's own thread
            failures.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    schedule.tick()
    assert not failures
    assert CleanupRun.objects.count() == 1
    assert answers(policy) == [Outcome.MISSED] * 2 + [Outcome.OPENED]
    assert OrmQ.objects.count() == 1
