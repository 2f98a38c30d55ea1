"""Bulk jobs: a frozen set, each item done once whatever stops where, as fast as its rate, and an outcome for every one."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import DatabaseError, OperationalError, connection, connections, transaction
from django.db.models import F
from django.db.models.functions import Now
from django_q.models import OrmQ

from cleanup_project.base import clock, jobpace, jobs, jobwork, limits, roles, tasks
from cleanup_project.base.jobs import JobRefused, Order, Outcome
from cleanup_project.base.models import Alarm, AuditEvent, BulkItem, BulkJob, Heartbeat, User
from tests.ledger.processes import Say, worker
from tests.ledger.threads import Beside, Gate

pytestmark = pytest.mark.django_db
KIND = "restart"
calls: list[tuple[str, str]] = []


def restart(ids: Sequence[int], by: User, reason: str) -> dict[int, Outcome]:
    """An effect that shows when it happens twice."""
    calls.append((by.username, reason))
    Heartbeat.objects.filter(pk__in=ids).update(restarts=F("restarts") + 1)
    return {each: Outcome("restarted" if each % 2 else "restarted_even", f"Number {each}.") for each in ids}


@pytest.fixture(autouse=True)
def a_kind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    calls.clear()
    before = dict(jobs.KINDS)
    jobs.register(KIND, restart, "Restart", "base.operate", Heartbeat, {"restarted", "restarted_even"})
    yield
    jobs.KINDS.clear()
    jobs.KINDS.update(before)


@pytest.fixture
def operator(person: Callable[..., User]) -> User:
    return person("olaf", roles.OPERATOR)


def rows(number: int) -> None:
    Heartbeat.objects.bulk_create(Heartbeat(host=f"h{each}", queue="work") for each in range(number))


def order(expected: int, **said: Any) -> Order:
    fields: dict[str, Any] = {
        "rows": Heartbeat.objects.filter(queue="work"),
        "selection": "clusters of work",
        "expected": expected,
        "reason": "They hang.",
        "token": uuid4(),
    }
    return Order(**fields | said)


def made(by: User, number: int, **said: Any) -> BulkJob:
    rows(number)
    return jobs.create(KIND, order(number, **said), by=by)


def skip(job: BulkJob, waits: list[float]) -> Callable[[float], None]:
    """Time passes at once."""

    def wait(seconds: float) -> None:
        waits.append(seconds)
        BulkJob.objects.filter(pk=job.pk).update(free_at=Now())

    return wait


def work(job: BulkJob, waits: list[float] | None = None) -> bool:
    ended = jobwork.work_slice(job.pk, budget_seconds=3600, wait=skip(job, [] if waits is None else waits))
    job.refresh_from_db()
    return ended


def rung() -> list[tuple[str, tuple[int, ...]]]:
    return [(message.func(), message.task["args"]) for message in OrmQ.objects.order_by("id")]


def restarts() -> set[int]:
    return set(Heartbeat.objects.filter(queue="work").values_list("restarts", flat=True))


def acts() -> list[str]:
    return list(AuditEvent.objects.order_by("id").values_list("action", flat=True))


def test_every_item_gets_its_outcome_and_its_effect_once(operator: User) -> None:
    job = made(operator, 25, rate=10)
    assert (job.state, job.total, job.done) == ("running", 25, 0)
    assert rung() == [(jobs.TASK, (job.pk,))]
    assert work(job)
    assert (job.state, job.done, restarts()) == ("done", 25, {1})
    assert job.finished_at is not None
    assert sum(job.outcomes.values()) == 25
    assert set(job.outcomes) == {"restarted", "restarted_even"}
    items = list(job.items.order_by("ordinal"))
    assert [each.ordinal for each in items] == list(range(1, 26))
    assert [each.subject_id for each in items] == sorted(each.subject_id for each in items)
    assert {each.detail for each in items} == {f"Number {each.subject_id}." for each in items}
    assert all(each.done_at for each in items)
    assert set(calls) == {("olaf", "They hang.")}
    assert acts() == ["bulkjob.created", "bulkjob.done"]
    created, ended = AuditEvent.objects.order_by("id")
    assert (created.actor, created.after["total"], created.after["seen"]) == (operator, 25, 25)
    assert (ended.actor, ended.after["outcomes"]) == (None, job.outcomes)
    assert work(job)
    assert restarts() == {1}


def test_the_set_is_frozen_when_the_job_is_made(operator: User) -> None:
    job = made(operator, 5)
    late = Heartbeat.objects.create(host="late", queue="work")
    work(job)
    late.refresh_from_db()
    assert (job.total, late.restarts) == (5, 0)


@pytest.mark.parametrize(
    ("seen", "there", "refused"),
    [
        (3, 0, "Nothing matches"),
        (5, 6, "You saw 5, and 6"),
        (6, 5, "You saw 6"),
        (100, 101, ""),
        (200, 203, "You saw 200"),
    ],
)
def test_what_is_no_longer_what_the_person_saw_is_refused(operator: User, seen: int, there: int, refused: str) -> None:
    rows(there)
    if not refused:
        assert jobs.create(KIND, order(seen), by=operator).total == there
        return
    with pytest.raises(JobRefused, match=refused):
        jobs.create(KIND, order(seen), by=operator)
    assert (BulkJob.objects.count(), BulkItem.objects.count(), rung(), acts()) == (0, 0, [], [])


def test_a_queryset_that_can_have_no_rows_is_refused_alike(operator: User) -> None:
    with pytest.raises(JobRefused, match="Nothing matches"):
        jobs.create(KIND, order(0, rows=Heartbeat.objects.none()), by=operator)


def test_a_set_that_is_too_large_is_refused(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MOST", 3)
    with pytest.raises(JobRefused, match="More than 3 match"):
        made(operator, 4)


def test_who_may_not_and_who_says_not_why_is_refused(operator: User, manager: User) -> None:
    rows(1)
    with pytest.raises(JobRefused, match=r"needs the right base\.operate"):
        jobs.create(KIND, order(1), by=manager)
    with pytest.raises(JobRefused, match="State a reason"):
        jobs.create(KIND, order(1, reason=" "), by=operator)
    for rate in (0, 1001):
        with pytest.raises(JobRefused, match="rate of 1 to 1,000"):
            jobs.create(KIND, order(1, rate=rate), by=operator)
    with pytest.raises(JobRefused, match="No application"):
        jobs.create("unheard", order(1), by=operator)
    job = jobs.create(KIND, order(1), by=operator)
    for act in (
        lambda: jobs.pause(job=job, by=manager, reason="No."),
        lambda: jobs.resume(job=job, by=manager),
        lambda: jobs.cancel(job=job, by=manager, reason="No."),
        lambda: jobs.set_rate(job=job, by=manager, rate=1),
    ):
        with pytest.raises(JobRefused, match="needs the right"):
            act()


def test_the_same_form_twice_makes_one_job(operator: User, person: Callable[..., User]) -> None:
    token = uuid4()
    first = made(operator, 3, token=token)
    assert jobs.create(KIND, order(3, token=token), by=operator) == first
    assert (BulkJob.objects.count(), BulkItem.objects.count(), len(rung()), len(acts())) == (1, 3, 1, 1)
    with pytest.raises(JobRefused, match="used already"):
        jobs.create(KIND, order(3, token=token), by=person("other", roles.OPERATOR))


def test_it_is_never_faster_than_its_rate(operator: User) -> None:
    """The waits that it asks for, and the time that it worked, are what its rate takes for all but the last chunk."""
    job, waits = made(operator, 35, rate=10), list[float]()
    began = time.monotonic()
    work(job, waits)
    worked = time.monotonic() - began
    assert all(0 < wait <= 1 for wait in waits)
    assert sum(waits) <= 3 <= sum(waits) + worked


def test_a_rate_may_change_while_it_runs(operator: User) -> None:
    job, waits = made(operator, 30, rate=10), list[float]()

    def wait(seconds: float) -> None:
        jobs.set_rate(job=job, by=operator, rate=20)
        skip(job, waits)(seconds)

    assert jobwork.work_slice(job.pk, budget_seconds=3600, wait=wait)
    assert len(waits) == 1
    assert acts() == ["bulkjob.created", "bulkjob.rate_changed", "bulkjob.done"]
    assert AuditEvent.objects.get(action="bulkjob.rate_changed").before["rate"] == 10
    with pytest.raises(JobRefused, match="done already"):
        jobs.set_rate(job=job, by=operator, rate=20)


def test_it_pauses_goes_on_and_is_cancelled_between_chunks(operator: User, person: Callable[..., User]) -> None:
    job = made(operator, 30, rate=10)

    def run(act: Callable[[], object]) -> None:
        assert jobwork.work_slice(job.pk, budget_seconds=3600, wait=lambda seconds: act())
        job.refresh_from_db()
        BulkJob.objects.filter(pk=job.pk).exclude(state="cancelled").update(free_at=Now())

    run(lambda: jobs.pause(job=job, by=operator, reason="Lunch."))
    assert (job.state, job.done, job.paused_because) == ("paused", 10, "Lunch.")
    assert work(job)
    assert job.done == 10
    with pytest.raises(JobRefused, match="is paused, so it cannot be paused"):
        jobs.pause(job=job, by=operator, reason="Again.")
    other = person("other", roles.COMPLIANCE)
    OrmQ.objects.all().delete()
    jobs.resume(job=job, by=other)
    assert (job.state, job.in_charge, job.requested_by, rung()) == (
        "running", other, operator, [(jobs.TASK, (job.pk,))],
    )  # fmt: skip
    with pytest.raises(JobRefused, match="nothing to resume"):
        jobs.resume(job=job, by=other)
    run(lambda: jobs.cancel(job=job, by=operator, reason="Enough."))
    assert (job.state, job.done) == ("cancelled", 20)
    assert [name for name, _ in calls] == ["olaf", "other"]
    assert work(job)
    assert Heartbeat.objects.filter(restarts=1).count() == 20
    with pytest.raises(JobRefused, match="cancelled already"):
        jobs.cancel(job=job, by=operator, reason="Enough.")
    with pytest.raises(JobRefused, match="nothing to resume"):
        jobs.resume(job=job, by=operator)
    assert acts() == [f"bulkjob.{act}" for act in ("created", "paused", "resumed", "cancelled")]


@pytest.mark.parametrize("how", ["deactivated", "right taken"])
def test_a_person_who_may_not_any_more_stops_it(operator: User, compliance: User, how: str) -> None:
    job = made(operator, 20, rate=10)
    jobwork.work_chunk(job.pk)
    skip(job, [])(0)
    if how == "deactivated":
        User.objects.filter(pk=operator.pk).update(is_active=False)
    else:
        operator.groups.clear()
    assert work(job)
    assert (job.state, job.done) == ("paused", 10)
    assert "olaf may not go on" in job.paused_because
    assert AuditEvent.objects.get(action="bulkjob.paused").actor is None
    jobs.resume(job=job, by=compliance)
    assert work(job)
    assert (job.state, job.done) == ("done", 20)


def test_a_job_of_a_kind_that_is_gone_pauses(operator: User) -> None:
    job = made(operator, 2)
    del jobs.KINDS[KIND]
    assert work(job)
    assert (job.state, job.done) == ("paused", 0)
    assert "No application does jobs of the kind restart" in job.paused_because
    with pytest.raises(JobRefused, match="No application"):
        jobs.resume(job=job, by=operator)


def test_an_item_on_which_the_verb_breaks_stops_no_other(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    job = made(operator, 9)
    poisoned = job.items.get(ordinal=5).subject_id

    def breaking(ids: Sequence[int], by: User, reason: str) -> dict[int, Outcome]:
        done = restart(ids, by, reason)
        if poisoned in ids:
            raise ValueError("It holds \x00.")
        return done

    jobs.register(KIND, breaking, "Restart", "base.operate", Heartbeat)
    work(job)
    assert (job.state, job.outcomes[jobwork.FAILED], job.done) == ("done", 1, 9)
    assert job.items.get(outcome=jobwork.FAILED).detail == "ValueError: It holds \\0."
    assert set(Heartbeat.objects.exclude(pk=poisoned).values_list("restarts", flat=True)) == {1}
    assert Heartbeat.objects.get(pk=poisoned).restarts == 0


def test_an_item_that_the_verb_says_nothing_of_failed(operator: User) -> None:
    job = made(operator, 2)
    jobs.register(KIND, lambda ids, by, reason: {}, "Restart", "base.operate", Heartbeat)
    work(job)
    assert job.outcomes == {jobwork.FAILED: 2}


def test_the_databases_trouble_is_no_items(operator: User) -> None:
    job = made(operator, 2)

    def away(ids: Sequence[int], by: User, reason: str) -> dict[int, Outcome]:
        raise OperationalError("The server went away.")

    jobs.register(KIND, away, "Restart", "base.operate", Heartbeat)
    with pytest.raises(OperationalError):
        jobwork.work_chunk(job.pk)
    tasks.bulk_job(job.pk)  # gives way
    job.refresh_from_db()
    assert (job.state, job.done, job.outcomes) == ("running", 0, {})


def test_a_slice_that_ends_rings_for_the_next(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DRAIN_BUDGET", 0)
    job = made(operator, 3, rate=1)
    OrmQ.objects.all().delete()
    tasks.bulk_job(job.pk)
    job.refresh_from_db()
    assert (job.done, rung()) == (1, [(jobs.TASK, (job.pk,))])
    OrmQ.objects.all().delete()
    jobs.pause(job=job, by=operator, reason="Lunch.")
    tasks.bulk_job(job.pk)
    assert rung() == []


def test_the_sweep_rings_for_what_nobody_works_at(operator: User) -> None:
    job = made(operator, 3)
    OrmQ.objects.all().delete()
    assert (jobpace.ring(), rung()) == (0, [])
    BulkJob.objects.filter(pk=job.pk).update(worked_at="2020-01-01T00:00Z")
    assert (jobpace.ring(), rung()) == (1, [(jobs.TASK, (job.pk,))])
    (alarm,) = Alarm.objects.open()
    assert (alarm.kind, alarm.subject_id) == (jobpace.STUCK, str(job.pk))
    jobs.pause(job=job, by=operator, reason="Lunch.")
    assert jobpace.ring() == 0
    assert not Alarm.objects.open().exists(), "paused, it stands still by somebody's will"
    jobs.resume(job=job, by=operator)
    assert jobpace.ring() == 0
    assert not Alarm.objects.open().exists(), "it has only just begun again"


def test_an_item_that_breaks_leaves_the_others_in_transactions_of_their_own(operator: User) -> None:
    job = made(operator, 3)
    broken = job.items.get(ordinal=2).subject_id
    committed = list[int]()

    def act(ids: Sequence[int], by: User, reason: str) -> dict[int, Outcome]:
        if broken in ids:
            raise ValueError("It broke.")
        committed.append(BulkJob.objects.get(pk=job.pk).done)
        return {each: Outcome("restarted") for each in ids}

    jobs.register(KIND, act, "Restart", "base.operate", Heartbeat)
    work(job)
    assert job.outcomes == {"restarted": 2, jobwork.FAILED: 1}
    assert committed == [0, 2], "what came before was recorded when the next began"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE base_bulkitem SET outcome = 'other' WHERE ordinal = 1",
        "UPDATE base_bulkitem SET subject_id = 0 WHERE ordinal = 2",
        "UPDATE base_bulkjob SET total = total + 1",
        "UPDATE base_bulkjob SET reason = 'Another.'",
        "UPDATE base_bulkjob SET done = 0",
        "UPDATE base_bulkjob SET done = total + 1",
        "UPDATE base_bulkjob SET state = 'done', finished_at = now()",
        "UPDATE base_bulkjob SET state = 'paused'",
        "DELETE FROM base_bulkitem",
        "TRUNCATE base_bulkjob CASCADE",
    ],
)
def test_the_database_keeps_what_a_job_is_about_and_how_items_ended(operator: User, change: str) -> None:
    job = made(operator, 2, rate=1)
    jobwork.work_chunk(job.pk)
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(change)


class TestSeveral:
    """With transactions that commit: processes that die, and workers side by side."""

    pytestmark = pytest.mark.django_db(transaction=True)

    @pytest.mark.parametrize("where", ["between chunks", "within a chunk"])
    def test_a_killed_worker_leaves_nothing_twice_and_nothing_out(self, operator: User, where: str) -> None:
        job = made(operator, 30, rate=10)

        def die(*_: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        def dying(ids: Sequence[int], by: User, reason: str) -> dict[int, Outcome]:
            done = restart(ids, by, reason)
            if len(calls) == 2:
                die()  # the effects are there, and not committed
            return done

        def child(say: Say) -> None:
            if where == "within a chunk":
                jobs.register(KIND, dying, "Restart", "base.operate", Heartbeat)
                jobwork.work_slice(job.pk, budget_seconds=60, wait=skip(job, []))
            else:
                jobwork.work_slice(job.pk, budget_seconds=60, wait=die)

        with worker(child) as dead:
            assert dead.ended() == -signal.SIGKILL
        job.refresh_from_db()
        assert (job.state, job.done) == ("running", 10)
        skip(job, [])(0)
        assert work(job)
        assert (job.state, job.done, restarts()) == ("done", 30, {1})

    def test_of_two_workers_one_goes_away(self, operator: User) -> None:
        job, gate = made(operator, 5), Gate()

        def slow(ids: Sequence[int], by: User, reason: str) -> dict[int, Outcome]:
            gate()
            return restart(ids, by, reason)

        jobs.register(KIND, slow, "Restart", "base.operate", Heartbeat)
        first = Beside(work, job)
        gate.reached()
        assert jobwork.work_slice(job.pk, budget_seconds=60)
        assert restarts() == {0}
        gate.open()
        assert first.answer()
        job.refresh_from_db()
        assert (job.state, restarts()) == ("done", {1})

    def test_a_double_click_makes_one_job(self, operator: User) -> None:
        rows(50)
        token = uuid4()

        def click() -> UUID:
            return jobs.create(KIND, order(50, token=token), by=operator).token

        both = [Beside(click), Beside(click)]
        assert [each.answer() for each in both] == [token, token]
        assert (BulkJob.objects.count(), BulkItem.objects.count()) == (1, 50)


def test_in_one_lane_one_job_of_a_kind_is_open(operator: User) -> None:
    rows(4)
    first = jobs.create(KIND, order(4, lanes=["north", "east"]), by=operator)
    with pytest.raises(JobRefused, match=f"{KIND} {first.pk} of olaf is running and does some of the same"):
        jobs.create(KIND, order(4, lanes=["east", "south"]), by=operator)
    assert jobs.create(KIND, order(4, lanes=["south"]), by=operator).pk != first.pk
    assert jobs.create(KIND, order(4), by=operator).lanes == []
    jobs.register("other", restart, "Other", "base.operate", Heartbeat)
    assert jobs.create("other", order(4, lanes=["north"]), by=operator).state == "running"
    jobs.pause(job=first, by=operator, reason="Lunch.")
    with pytest.raises(JobRefused, match="is paused"):
        jobs.create(KIND, order(4, lanes=["north"]), by=operator)
    jobs.cancel(job=first, by=operator, reason="Enough.")
    assert jobs.create(KIND, order(4, lanes=["north"]), by=operator).state == "running"


@pytest.mark.django_db(transaction=True)
def test_of_two_who_begin_at_once_in_one_lane_one_is_refused(operator: User) -> None:
    rows(4)
    start = Barrier(2)

    def begin(_number: int) -> str:
        try:
            start.wait()
            return jobs.create(KIND, order(4, lanes=["north"]), by=operator).state
        except JobRefused as refusal:
            return str(refusal)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        told = sorted(pool.map(begin, range(2)))
    assert [each[: len(KIND)] for each in told] == [KIND, "running"[: len(KIND)]]
    assert "does some of the same" in told[0]
    assert BulkJob.objects.count() == 1


def test_a_verb_is_told_the_details_of_its_order(operator: User) -> None:
    heard = list[dict[str, str]]()

    def listen(ids: Sequence[int], by: User, reason: str, **details: str) -> dict[int, Outcome]:
        heard.append(details)
        return restart(ids, by, reason)

    jobs.register(KIND, listen, "Restart", "base.operate", Heartbeat)
    job = made(operator, 2, details={"repair": "the fan"})
    work(job)
    assert heard == [{"repair": "the fan"}]


def test_about_when_it_will_have_ended_follows_its_last_items(operator: User) -> None:
    job = made(operator, 100, rate=10)
    now = clock.now()
    planned = jobpace.ends_at(job)
    assert planned is not None
    assert 9 < (planned - now).total_seconds() < 12
    for ordinal, ago in ((1, 9), (10, 0)):
        ended = {"outcome": "restarted", "done_at": now - timedelta(seconds=ago)}
        BulkItem.objects.filter(job=job, ordinal=ordinal).update(**ended)
    BulkJob.objects.filter(pk=job.pk).update(done=10)
    job.refresh_from_db()
    slower = jobpace.ends_at(job)
    assert slower is not None
    assert 85 < (slower - clock.now()).total_seconds() < 95  # 90 are left, and one a second went
    jobs.pause(job=job, by=operator, reason="Lunch.")
    job.refresh_from_db()
    assert jobpace.ends_at(job) is None


def test_what_was_not_done_well_comes_first(operator: User) -> None:
    jobs.register(KIND, restart, "Restart", "base.operate", Heartbeat, {"restarted"})
    job = made(operator, 6)
    work(job)
    found = list(jobwork.not_done_well(job))
    assert len(found) == 3
    assert {each.outcome for each in found} == {"restarted_even"}
