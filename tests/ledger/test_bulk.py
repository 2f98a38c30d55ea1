"""Many quarantine entries at once: a frozen set, every check for each, an outcome in words for each."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django_q.models import OrmQ

from cleanup_project.base import jobs, jobwork
from cleanup_project.base.jobs import JobRefused
from cleanup_project.base.models import AuditEvent, BulkJob, User
from ledger import bulk, causes, quarantine, replayable
from ledger.models import CleanupCommand, CommandTarget, DeadLetter, Decision, RunTally
from ledger.states import CommandState
from retention import control, policies
from retention.models import Enforcement, Tenant
from retention.storage import Failure, FailureClass
from retention.storage.memory import Fault
from tests.ledger.acting import Acting, build
from tests.ledger.parking import DENIED, parked, released
from tests.world import hold
from webhooks.models import OutboxEvent

pytestmark = pytest.mark.django_db
WHY = "The bucket policy is repaired."


@pytest.fixture
def world() -> Acting:
    return build()


def ordered(
    world: Acting, verb: Callable[..., BulkJob] = bulk.replay_all, by: str = "compliance", **said: Any
) -> BulkJob:
    rows = said.pop("rows", DeadLetter.objects.all())
    fields: dict[str, Any] = {
        "selection": "open entries", "expected": bulk.mine(rows, world.people[by]).count(), "token": uuid4(), "reason": WHY,
    }  # fmt: skip
    return verb(rows=rows, by=world.people[by], **fields | said)


def work(job: BulkJob) -> BulkJob:
    while jobwork.work_chunk(job.pk) is not None:
        BulkJob.objects.filter(pk=job.pk).update(free_at=Now())
    job.refresh_from_db()
    return job


def outcomes(job: BulkJob) -> dict[int, str]:
    return dict(job.items.values_list("subject_id", "outcome"))


def words(job: BulkJob, entry: DeadLetter) -> str:
    return str(job.items.get(subject_id=entry.pk).detail)


def test_an_entry_names_its_cause_its_object_and_its_run(world: Acting) -> None:
    (entry,) = parked(world, "a")
    command = entry.command
    assert (entry.storage_code, entry.http_status, entry.failure_class) == ("AccessDenied", None, "permission")
    assert (entry.key, entry.version_id) == ("clips/a", world.versions["clips/a"][0].version_id)
    assert (entry.run_id, entry.policy_id) == (command.run_id, command.policy_id)
    assert entry.first_failed_at <= entry.entered_at
    answered = Failure(FailureClass.PERMISSION, False, DENIED.scope, "AccessDenied", "No.", http_status=403)
    (entry,) = parked(world, "b", failure=answered)
    assert entry.http_status == 403


def test_a_job_replays_them_all_and_each_may_then_be_destroyed(world: Acting) -> None:
    entries = parked(world, "a", "b", "c")
    OrmQ.objects.all().delete()
    job = work(ordered(world, repair="bucket policy"))
    assert (job.state, job.outcomes) == ("done", {"replayed": 3})
    assert set(CleanupCommand.objects.values_list("state", "cycle", "attempts", "failure_class")) == {
        ("ready", 1, 0, "")
    }
    assert CommandTarget.objects.filter(active=True).count() == 3
    for entry in entries:
        entry.refresh_from_db()
        assert (entry.resolution, entry.resolved_by, entry.reason) == ("replayed", world.people["compliance"], WHY)
    assert set(Decision.objects.values_list("kind", "cycle", "repair", "reason", "by__username")) == {
        ("replay", 1, "bucket policy", WHY, "compliance")
    }
    told = AuditEvent.objects.filter(action="command.replayed")
    assert {each.subject_id for each in told} == {str(entry.command_id) for entry in entries}
    assert [each.before for each in told] == [{"state": "dead", "cycle": 0}] * 3
    assert OutboxEvent.objects.filter(type="quarantine.resolved").count() == 3
    assert sum(RunTally.objects.filter(outcome="dead").values_list("commands", flat=True)) == 0
    assert "ledger.tasks.drain" in {message.func() for message in OrmQ.objects.all()}
    assert world.drain().gone == 3


def test_each_that_may_not_be_replayed_says_why_and_stops_no_other(world: Acting) -> None:
    held, destroyed, doubted, fine = parked(world, "held", "destroyed", "doubted", "fine")
    hold(world.tenant, world.bucket, "clips/held", by=world.people["compliance"])
    row = world.versions["clips/destroyed"][0]
    row.gone_at, row.gone_reason = fine.entered_at, "destroyed"
    row.save()
    CleanupCommand.objects.filter(pk=doubted.command_id).update(inspect_due=Now())
    job = work(ordered(world))
    assert outcomes(job) == {
        held.pk: "refused", destroyed.pk: "refused", doubted.pk: "refused", fine.pk: "replayed",
    }  # fmt: skip
    assert "A legal hold covers it" in words(job, held)
    assert "no longer in the bucket" in words(job, destroyed)
    assert "not known yet" in words(job, doubted)
    assert DeadLetter.objects.filter(resolved_at=None).count() == 3
    assert [item.subject_id for item in jobwork.not_done_well(job)] == [held.pk, destroyed.pk, doubted.pk]


@pytest.mark.parametrize(
    ("forbid", "said"),
    [
        (
            lambda w: control.press(scope="tenant", tenant=w.tenant, by=w.people["operator"], reason="Look."),
            "Stopped by",
        ),
        (lambda w: Enforcement.objects.update(switched_off_at=Now()), "Enforcement is off"),
        (
            lambda w: policies.suspend(policy=w.revision.policy, by=w.people["manager"], reason="Under review."),
            "suspended",
        ),
    ],
)
def test_what_forbids_one_replay_forbids_many(forbid: Callable[[Acting], Any], said: str, world: Acting) -> None:
    parked(world, "a", "b")
    forbid(world)
    job = work(ordered(world))
    assert job.outcomes == {"refused": 2}
    assert all(said in item.detail for item in job.items.all())
    assert not Decision.objects.exists()


def test_of_two_commands_that_have_one_object_the_first_is_replayed(world: Acting) -> None:
    one, other = replayable.cases_of([entry.command for entry in parked(world, "one", "other")])
    same = replace(other, targets=one.targets, versions=one.versions)
    (_, allowed), (_, refusal) = replayable.refusals([one, same])
    assert allowed is None
    assert str(refusal) == f"Another command has one of its objects: {one.command}. Let that one end."


def test_what_came_later_is_not_in_the_set(world: Acting) -> None:
    *_first, late = parked(world, "a", "b", "late")
    DeadLetter.objects.filter(pk=late.pk).update(failure_class="transient")
    job = ordered(world, rows=DeadLetter.objects.filter(failure_class="permission"))
    DeadLetter.objects.filter(pk=late.pk).update(failure_class="permission")
    assert work(job).total == 2
    late.refresh_from_db()
    assert late.resolved_at is None


def test_what_was_decided_before_its_turn_is_left_as_it_is(world: Acting) -> None:
    closed, again, left = parked(world, "closed", "again", "left")
    job = ordered(world)
    quarantine.close(command=closed.command, by=world.people["compliance"], reason="Kept.")
    quarantine.replay(command=again.command, by=world.people["operator"], reason="By hand.")
    world.store.inject(Fault("delete_versions", DENIED))
    world.drain()
    assert CleanupCommand.objects.get(pk=again.command_id).state == CommandState.DEAD
    work(job)
    assert outcomes(job) == {closed.pk: "resolved_before", again.pk: "resolved_before", left.pk: "replayed"}
    assert words(job, closed).startswith("Closed without retry by compliance at ")
    assert words(job, again).startswith("Replayed by operator at ")
    newer = DeadLetter.objects.get(command=again.command_id, cycle=1)
    assert newer.resolved_at is None


def test_what_is_resolved_between_the_look_and_the_lock_is_left_as_it_is(world: Acting) -> None:
    """As a look without locks has it: the entry is open; under the lock it no longer is."""
    (entry,) = parked(world, "a")
    quarantine.close(command=entry.command, by=world.people["compliance"], reason="Kept.")
    refused = quarantine.replay_each([entry.command_id], world.people["compliance"], WHY, "", entries=[entry.pk])
    assert "has no open quarantine entry: closed without retry" in str(refused[entry.command_id])
    assert quarantine.close_each([entry.command_id], world.people["compliance"], WHY, entries=[entry.pk]) == []
    assert not Decision.objects.exists()


def test_a_job_closes_them_without_retry(world: Acting) -> None:
    one, two = parked(world, "one", "two")
    job = ordered(world, bulk.close_all)
    quarantine.replay(command=one.command, by=world.people["operator"], reason="By hand.")
    work(job)
    assert outcomes(job) == {one.pk: "resolved_before", two.pk: "closed"}
    two.refresh_from_db()
    assert (two.resolution, two.resolved_by, two.reason) == ("closed", world.people["compliance"], WHY)
    assert two.command.state == CommandState.DEAD
    event = AuditEvent.objects.get(action="command.closed")
    assert (event.subject_id, event.before) == (str(two.command_id), {"failure_class": "permission", "cycle": 0})
    assert OutboxEvent.objects.filter(type="quarantine.resolved").count() == 2


@pytest.mark.parametrize(
    ("who", "replays", "closes"), [("compliance", True, True), ("operator", True, False), ("manager", False, False)]
)
def test_who_may_order_what(who: str, replays: bool, closes: bool, world: Acting) -> None:
    parked(world, "a")
    for verb, may in ((bulk.close_all, closes), (bulk.replay_all, replays)):
        if may:
            jobs.cancel(job=ordered(world, verb, who), by=world.people[who], reason="Enough.")
        else:
            with pytest.raises(JobRefused, match="it needs the right"):
                ordered(world, verb, who)


def only(world: Acting, name: str, *tenants: str) -> User:
    world.people[name].tenants = list(tenants)
    world.people[name].save()
    return world.people[name]


def test_a_job_is_only_about_the_tenants_of_who_orders_it(world: Acting) -> None:
    parked(world, "a")
    only(world, "operator", "elsewhere")
    with pytest.raises(JobRefused, match="Nothing matches"):
        ordered(world, by="operator", expected=1)
    assert causes.groups(world.people["operator"].tenants).each == []
    only(world, "operator", world.tenant.code)
    job = ordered(world, by="operator")
    jobs.pause(job=job, by=world.people["operator"], reason="Handed over.")
    with pytest.raises(JobRefused):
        jobs.resume(job=job, by=only(world, "compliance", "elsewhere"))
    job.refresh_from_db()
    assert job.state == "paused"


def test_one_job_at_a_time_replays_a_tenants_entries_of_a_class(world: Acting) -> None:
    parked(world, "a", "b")
    first = ordered(world, by="operator")
    with pytest.raises(JobRefused, match=f"replay {first.pk} of operator is running and does some of the same"):
        ordered(world)
    closing = ordered(world, bulk.close_all)
    assert closing.state == "running"
    jobs.cancel(job=first, by=world.people["operator"], reason="Enough.")
    assert ordered(world).state == "running"


def test_one_form_makes_one_job(world: Acting) -> None:
    parked(world, "a")
    token = uuid4()
    assert ordered(world, token=token).pk == ordered(world, token=token).pk


def test_a_job_pauses_goes_on_and_is_cancelled_between_its_entries(world: Acting) -> None:
    parked(world, "a", "b", "c")
    job = ordered(world, by="operator", rate=1)
    jobwork.work_chunk(job.pk)
    jobs.pause(job=job, by=world.people["operator"], reason="Lunch.")
    assert jobwork.work_chunk(job.pk) is None
    jobs.resume(job=job, by=world.people["compliance"])
    BulkJob.objects.update(free_at=Now())
    jobwork.work_chunk(job.pk)
    jobs.cancel(job=job, by=world.people["operator"], reason="Enough.")
    assert sorted(outcomes(job).values()) == ["", "replayed", "replayed"]
    assert set(Decision.objects.values_list("by__username", flat=True)) == {"operator", "compliance"}


def test_a_count_tells_causes_and_a_sample_what_would_be_refused(world: Acting) -> None:
    *_two, third = parked(world, "a", "b", "c")
    mismatch = {"failure_class": "version_mismatch", "storage_code": "PreconditionFailed"}
    DeadLetter.objects.filter(pk=third.pk).update(**mismatch)
    placed = hold(world.tenant, world.bucket, "clips/a", by=world.people["compliance"])
    counted = bulk.count(DeadLetter.objects.all())
    assert [(cause.failure_class, cause.storage_code, number) for cause, number in counted.by_cause] == [
        ("permission", "AccessDenied", 2), ("version_mismatch", "PreconditionFailed", 1),
    ]  # fmt: skip
    assert (counted.total, counted.whole) == (3, True)
    assert counted.lanes == {f"{world.tenant.pk}/permission", f"{world.tenant.pk}/version_mismatch"}
    sampled = bulk.sample(DeadLetter.objects.all())
    assert sampled.looked_at == 3
    ((said, number),) = sampled.reasons
    assert (number, f"hold {placed.pk}" in said) == (1, True)
    released(placed)
    assert bulk.sample(DeadLetter.objects.all()).reasons == []


def test_causes_are_grouped_by_what_one_repair_would_let_go_on(world: Acting, monkeypatch: pytest.MonkeyPatch) -> None:
    parked(world, "a", "b", "c")
    (group,) = causes.groups(world.people["compliance"].tenants).each
    assert (group.failure_class, group.storage_code, group.number, group.whole) == (
        "permission",
        "AccessDenied",
        3,
        True,
    )
    assert (group.at, group.tenants) == (world.bucket, [world.tenant])
    assert group.oldest == min(DeadLetter.objects.values_list("entered_at", flat=True))
    monkeypatch.setattr(causes, "COUNTED_AT_MOST", 2)
    (group,) = causes.groups(world.people["compliance"].tenants).each
    assert (group.number, group.whole) == (2, False)
    quarantine.close(command=world.command("clips/a"), by=world.people["compliance"], reason="Kept.")
    quarantine.close(command=world.command("clips/b"), by=world.people["compliance"], reason="Kept.")
    (group,) = causes.groups(world.people["compliance"].tenants).each
    assert group.number == 1


def test_other_tenants_causes_take_no_place_and_what_is_left_out_is_said(
    world: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _two = parked(world, "a", "b")
    other = Tenant.objects.create(code="aaa")
    DeadLetter.objects.filter(pk=one.pk).update(tenant=other, failure_class="conflict")
    monkeypatch.setattr(causes, "CAUSES_AT_MOST", 1)
    found = causes.groups([world.tenant.code])
    assert ([each.failure_class for each in found.each], found.more, found.whole) == (["permission"], False, True)
    found = causes.groups()
    assert ([each.failure_class for each in found.each], found.more, found.whole) == (["conflict"], True, False)


def test_twice_as_many_take_no_more_statements(world: Acting) -> None:
    by = world.people["compliance"]

    def statements(*names: str) -> int:
        entries = parked(world, *names)
        with transaction.atomic(), CaptureQueriesContext(connection) as captured:
            told = bulk.carry_out_replay([entry.pk for entry in entries], by, WHY)
            transaction.set_rollback(True)
        assert {each.code for each in told.values()} == {"replayed"}
        return len(captured)

    statements("warm")
    assert statements("a", "b") == statements("c", "d", "e", "f", "g")
