"""Circuit breakers: what counts, when a run trips and a bucket is stopped, and how a named person goes on."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.db.models.functions import Now
from django.test import Client

from cleanup_project.base import clock
from cleanup_project.base.models import Alarm, AuditEvent
from ledger import breaker, claim, runs, sweep
from ledger.exceptions import LedgerError
from ledger.failures import BLAMELESS, RULES, Trouble
from ledger.models import CleanupCommand, CleanupRun, OutcomeTally
from ledger.states import RunState
from retention import control
from retention.models import Bucket, ObjectVersion, StopSwitch
from retention.storage import BucketRef, DeleteOutcome, Failure, FailureClass, VersionRef
from retention.storage.memory import MemoryStore
from tests.ledger import invariants
from tests.ledger.acting import EPOCH, Acting, build
from tests.ledger.threads import Beside, somebody_waits, until
from tests.web import quick_pages, url  # noqa: F401

pytestmark = pytest.mark.django_db


class Failing(MemoryStore):
    """Fails for keys that begin with `bad`, each time."""

    kind = FailureClass.PERMISSION
    prefix = "bad"

    def _delete(self, bucket: BucketRef, ref: VersionRef) -> DeleteOutcome:
        if ref.key.startswith(self.prefix):
            return DeleteOutcome.failed(Failure.of(self.kind, self.kind, "said the store"), sent=True)
        return super()._delete(bucket, ref)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "BATCH", 25)
    monkeypatch.setattr(breaker, "EVERY", 0.0)


def made(bad: int, good: int, **revision: Any) -> tuple[Acting, CleanupRun]:
    """A run of so many commands, of which the bad ones come first."""
    world = build(Failing(), **revision)
    world.fill([f"bad{n:03}" for n in range(bad)] + [f"good{n:03}" for n in range(good)])
    return world, world.run()


def state(run: CleanupRun) -> str:
    run.refresh_from_db()
    return run.state


def ready() -> int:
    return CleanupCommand.objects.filter(state="ready").count()


def tallied(world: Acting, run: CleanupRun, *rows: tuple[int, int], at: datetime | None = None) -> None:
    OutcomeTally.objects.bulk_create(
        OutcomeTally(run=run, bucket=world.bucket, failed=failed, tried=tried, at=at or clock.now())
        for failed, tried in rows
    )


def test_a_run_of_which_too_much_fails_is_tripped_and_goes_on_when_it_is_re_armed() -> None:
    world, run = made(bad=15, good=85)
    world.drain()
    assert (state(run), ready()) == (RunState.TRIPPED, 50), "after the second batch: 15 of 50"
    words = "15 of 50 outcomes failed (30 %), more than 20 %."
    event = AuditEvent.objects.get(action="run.tripped")
    assert (event.actor_name, event.reason) == ("system", words)
    assert event.after == {"state": "tripped", "failed": 15, "tried": 50, "percent": 20, "minimum": 50}
    alarm = Alarm.objects.open().get()
    assert (alarm.kind, alarm.subject_label) == ("run.tripped", run.key)
    assert words in alarm.message
    assert not StopSwitch.objects.exists()
    assert world.drain().claimed == 0

    runs.rearm(run=run, by=world.people["compliance"], reason="Granted.")
    assert not Alarm.objects.open().exists()
    assert AuditEvent.objects.filter(action="run.draining", reason="Granted.").exists()
    assert not breaker.judge_run(run.pk), "what failed before does not count again"
    assert world.drain().gone == 50
    world.settled()
    assert (state(run), run.counts) == (RunState.CLOSED, {"deleted": 85, "dead": 15})
    world.settled()
    invariants.check(world.stores)


@pytest.mark.parametrize(
    ("bad", "good", "revision"),
    [
        (49, 0, {}),  # too few to tell
        (10, 60, {}),  # 10 of the first 50 are no more than 20 %
        (60, 0, {"breaker_percent": None}),
        (30, 40, {"breaker_percent": 99}),
        (1, 59, {"breaker_minimum": 2, "breaker_percent": 5}),  # one bad key of a batch
    ],
)
def test_a_run_goes_on_while_no_more_fails_than_its_revision_says(
    bad: int, good: int, revision: dict[str, Any]
) -> None:
    world, run = made(bad, good, **revision)
    Bucket.objects.update(breaker_percent=None)
    assert world.drain().gone == good
    world.settled()
    assert state(run) == RunState.CLOSED


@pytest.mark.parametrize(("failed_of_each_thousand", "expected"), [(200, False), (201, True)])
def test_of_eighty_thousand_the_share_decides(failed_of_each_thousand: int, expected: bool) -> None:
    world, run = made(bad=0, good=1)
    tallied(world, run, *[(failed_of_each_thousand, 1000)] * 80)
    assert breaker.judge_run(run.pk) == expected
    assert state(run) == (RunState.TRIPPED if expected else RunState.DRAINING)


def test_one_bad_key_never_trips_whatever_it_costs() -> None:
    world = build(Failing())
    world.store.kind = FailureClass.TRANSIENT
    world.fill(["bad", "good"])
    run = world.run()
    for _ in range(8):
        world.due_now()
        world.drain(budget_seconds=1)
    assert world.command("bad").state == "dead"
    assert OutcomeTally.objects.filter(failed=1).count() == 1
    world.settled()
    assert state(run) == RunState.CLOSED


@pytest.mark.parametrize("kind", [FailureClass.LOCKED, FailureClass.LEGAL_HOLD, FailureClass.THROTTLED])
def test_protection_and_throttling_trip_nothing(kind: FailureClass) -> None:
    world = build(Failing())
    world.store.kind = kind
    world.fill([f"bad{n:03}" for n in range(60)] + ["good"])
    run = world.run()
    world.drain(budget_seconds=1)
    assert world.store.calls
    assert (state(run), StopSwitch.objects.exists()) == (RunState.DRAINING, False)
    assert not OutcomeTally.objects.filter(failed__gt=0).exists()


def test_what_was_gone_before_any_request_trips_nothing() -> None:
    world = build(Failing())
    rows = world.fill([f"good{n:03}" for n in range(60)])
    run = world.run()
    world.store.delete_versions(world.place, [VersionRef(row.key, row.version_id) for row in rows], deadline_seconds=60)
    ObjectVersion.objects.update(listed_at=EPOCH)
    world.drain()
    assert set(CleanupCommand.objects.values_list("failure_class", flat=True)) == {Trouble.ALREADY_ABSENT}
    assert (state(run), OutcomeTally.objects.exists()) == (RunState.DRAINING, False)


def test_every_class_that_has_a_rule_either_counts_or_is_blameless() -> None:
    counted = set(RULES) - BLAMELESS
    assert counted == {
        FailureClass.TRANSIENT, FailureClass.CONFLICT, FailureClass.PERMISSION, FailureClass.BUCKET_MISSING,
        FailureClass.VERSION_MISMATCH, FailureClass.MALFORMED_VERSION, FailureClass.MALFORMED_REQUEST,
        Trouble.BUCKET_DENIED, Trouble.SURVIVED, Trouble.UNCONFIRMED,
    }  # fmt: skip
    assert set(RULES) >= BLAMELESS


def test_only_compliance_re_arms_a_tripped_run_and_with_a_reason() -> None:
    world, run = made(bad=0, good=1)
    with pytest.raises(LedgerError, match="only a run that is tripped"):
        runs.rearm(run=run, by=world.people["compliance"], reason="Go on.")
    tallied(world, run, (50, 50))
    assert breaker.judge_run(run.pk)
    assert not breaker.judge_run(run.pk), "tripped once"
    for name in ("operator", "manager"):
        with pytest.raises(LedgerError, match="no role of theirs has the right rearm"):
            runs.rearm(run=run, by=world.people[name], reason="Go on.")
    with pytest.raises(LedgerError, match="State a reason"):
        runs.rearm(run=run, by=world.people["compliance"], reason=" ")
    with pytest.raises(LedgerError, match="only a run that is paused"):
        runs.resume(run=run, by=world.people["operator"], reason="Go on.")
    assert (state(run), Alarm.objects.open().count()) == (RunState.TRIPPED, 1)


def test_a_re_armed_run_trips_again_by_what_fails_from_then_on() -> None:
    world, run = made(bad=0, good=1)
    tallied(world, run, (50, 50))
    breaker.judge_run(run.pk)
    runs.rearm(run=run, by=world.people["compliance"], reason="Repaired.")
    tallied(world, run, (49, 49))
    assert not breaker.judge_run(run.pk)
    tallied(world, run, (1, 1))
    assert breaker.judge_run(run.pk)


def test_a_cancelled_run_ends_its_alarm() -> None:
    world, run = made(bad=0, good=1)
    tallied(world, run, (50, 50))
    breaker.judge_run(run.pk)
    runs.cancel(run=run, by=world.people["operator"], reason="Given up.")
    assert not Alarm.objects.open().exists()


def test_a_bucket_in_which_too_much_fails_is_stopped_by_the_system() -> None:
    world, run = made(bad=30, good=70, breaker_percent=None)
    other = Bucket.objects.create(name="other")
    world.drain()
    switch = StopSwitch.objects.active().get()
    assert (switch.bucket, switch.pressed_by, ready()) == (world.bucket, None, 50)
    words = "30 of 50 outcomes failed (60 %), more than 50 %."
    assert switch.reason == f"The circuit breaker: within 5 minutes, {words}"
    alarm = Alarm.objects.open().get()
    assert (alarm.kind, words in alarm.message) == ("bucket.tripped", True)
    assert (state(run), world.drain().claimed) == (RunState.DRAINING, 0)
    assert not breaker.judge_bucket(other.pk)
    assert not breaker.judge_bucket(world.bucket.pk), "stopped once"

    control.lift(switch=switch, by=world.people["compliance"], reason="Granted.")
    assert not Alarm.objects.open().exists()
    assert not breaker.judge_bucket(world.bucket.pk), "what failed before does not count again"
    assert world.drain().gone == 50
    world.settled()
    invariants.check(world.stores)


@pytest.mark.parametrize(
    ("failed", "tried", "minutes_ago", "percent", "expected"),
    [
        (26, 50, 0, 50, True),
        (25, 50, 0, 50, False),
        (49, 49, 0, 50, False),
        (50, 50, 6, 50, False),
        (50, 50, 4, 50, True),
        (50, 50, 0, None, False),
    ],
)
def test_a_bucket_is_judged_by_its_last_five_minutes(
    failed: int, tried: int, minutes_ago: int, percent: int | None, expected: bool
) -> None:
    world, run = made(bad=0, good=1, breaker_percent=None)
    Bucket.objects.update(breaker_percent=percent)
    tallied(world, run, (failed, tried), at=clock.now() - timedelta(minutes=minutes_ago))
    assert breaker.judge_bucket(world.bucket.pk) == expected


def test_the_sweep_judges_what_no_drain_has_judged() -> None:
    world, run = made(bad=0, good=1)
    tallied(world, run, (60, 60))
    assert sweep.sweep()["tripped"] == 2
    assert (state(run), StopSwitch.objects.active().count()) == (RunState.TRIPPED, 1)
    assert sweep.sweep()["tripped"] == 0


@pytest.mark.django_db(transaction=True)
def test_a_run_that_was_re_armed_while_it_was_judged_is_not_tripped() -> None:
    world, run = made(bad=0, good=1)
    tallied(world, run, (50, 50))
    with transaction.atomic():
        CleanupRun.objects.select_for_update(no_key=True).get(pk=run.pk)
        judging = Beside(breaker.judge_run, run.pk)
        until(somebody_waits)
        CleanupRun.objects.filter(pk=run.pk).update(rearmed_at=Now())
    assert judging.answer() is False


def test_a_tripped_run_is_re_armed_on_its_page(client: Client) -> None:
    world, run = made(bad=0, good=1)
    tallied(world, run, (50, 50))
    breaker.judge_run(run.pk)
    page, own = url(CleanupRun, "rearm", run.pk), url(CleanupRun, "change", run.pk)
    client.force_login(world.people["operator"])
    assert page not in client.get(own).content.decode()
    assert client.post(page, {"reason": "Go on."}).status_code == 403
    client.force_login(world.people["compliance"])
    assert f'href="{page}">Re-arm</a>' in client.get(own).content.decode()
    assert "Re-arm the run" in client.get(page).content.decode()
    assert client.post(page, {"reason": "Granted."}).status_code == 302
    assert state(run) == RunState.DRAINING
