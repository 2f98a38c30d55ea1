"""Workers that are killed, stopped and late, as real processes on one database and one store."""

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from ledger import claim, inflight, manifest, publish, retry, runs, sweep
from ledger import drain as draining
from ledger.models import CleanupCommand, CleanupRun, Receipt, Request
from ledger.states import CommandState, RunState
from retention.models import PolicyRevision
from tests.ledger import invariants
from tests.ledger.acting import Acting, build
from tests.ledger.folder import FolderStore
from tests.ledger.processes import Hooked, Say, die_at, worker
from tests.world import hold, published
from webhooks.models import OutboxEvent

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is due in an hour, and not at some time within two seconds; `due_now` lets the hour pass."""
    monkeypatch.setattr(retry, "delay", lambda *_: 3600.0)


@pytest.fixture
def world(tmp_path: Path) -> Acting:
    made = build(FolderStore(tmp_path / "store"))
    made.subscribe()
    return made


def drained(world: Acting, stores: Callable[..., object] | None = None) -> Callable[[Say], None]:
    """The work of a process that drains once and says what it did."""

    def work(say: Say) -> None:
        done = draining.drain(world.bucket.pk, stores=stores or world.stores)
        say(f"{done.claimed} {done.gone} {done.late}")

    return work


def assert_all_destroyed(world: Acting, *rows: object, run: CleanupRun | None = None) -> None:
    """Versions gone; for each command one receipt, one event and at least one request; nothing stuck, all invariants."""
    sweep.sweep()
    assert not any(map(world.there, rows))
    commands = CleanupCommand.objects.count()
    assert set(CleanupCommand.objects.values_list("state", flat=True)) == {CommandState.DELETED}
    assert Receipt.objects.count() == OutboxEvent.objects.filter(type="media.deleted").count() == commands
    assert Request.objects.values("command_id").distinct().count() == commands
    if run is not None:
        run.refresh_from_db()
        assert run.state == RunState.CLOSED
    invariants.check(world.stores)


def test_a_worker_killed_after_its_claim_leaves_the_work_to_the_next(world: Acting) -> None:
    row = world.put("a.mp4")
    run = world.run()

    def killed(say: Say) -> None:
        draining.execute = lambda batch, stores: os.kill(os.getpid(), signal.SIGKILL)
        world.drain()

    with worker(killed) as child:
        assert child.ended() == -signal.SIGKILL
    assert world.drain().claimed == 0, "the lease is still the dead worker's"
    world.leases_expire()
    world.drain()
    assert world.story("a.mp4") == ["lease_lost", "deleted"]
    assert_all_destroyed(world, row, run=run)


def test_a_worker_killed_between_the_deletion_and_its_settlement_is_confirmed_by_absence(world: Acting) -> None:
    rows = [world.put(f"{n}.mp4") for n in range(3)]
    run = world.run()
    dying = Hooked(world.store, after=die_at("delete_versions"))
    with worker(drained(world, dying)) as child:
        assert child.ended() == -signal.SIGKILL
    assert not any(world.there(row) for row in rows)
    assert Receipt.objects.count() == 0
    world.leases_expire()
    world.drain()
    for n in range(3):
        assert world.story(f"{n}.mp4") == ["lease_lost", "by_absence"]
    assert_all_destroyed(world, *rows, run=run)


def test_a_worker_killed_within_a_batch_of_a_thousand_keys_loses_none_of_them(world: Acting) -> None:
    rows = world.fill([f"{n:04}.mp4" for n in range(1000)])
    run = world.run()

    def killed(say: Say) -> None:
        world.store.between = lambda gone: gone == 400 and os.kill(os.getpid(), signal.SIGKILL)
        world.drain()

    with worker(killed) as child:
        assert child.ended() == -signal.SIGKILL
    assert len(list(world.store.root.iterdir())) == 600
    world.leases_expire()
    world.drain()
    world.due_now()
    world.drain()
    told = {tuple(world.story(f"{n:04}.mp4")) for n in (0, 399, 400, 999)}
    assert told == {("lease_lost", "by_absence"), ("lease_lost", "present", "deleted")}
    assert Receipt.objects.filter(outcome="by_absence").count() == 400
    assert_all_destroyed(world, *rows, run=run)


def test_ten_drains_share_the_commands_and_send_each_key_once(world: Acting) -> None:
    rows = world.fill([f"{n:03}.mp4" for n in range(120)])
    run = world.run()

    def work(say: Say) -> None:
        claim.BATCH = 7
        drained(world)(say)

    with ExitStack() as started:
        children = [started.enter_context(worker(work)) for _ in range(10)]
        said = [[int(word) for word in child.heard().split()] for child in children]
        assert [child.ended() for child in children] == [0] * 10
    assert sum(claimed for claimed, _gone, _late in said) == 120
    assert sum(gone for _claimed, gone, _late in said) == 120
    assert sum(keys for _at, keys in world.store.requests()) == 120
    assert set(CleanupCommand.objects.values_list("lease_token", flat=True)) == {1}
    assert_all_destroyed(world, *rows, run=run)


def test_two_runs_over_the_same_objects_destroy_each_of_them_once(world: Acting) -> None:
    rows = world.fill([f"{n:02}.mp4" for n in range(40)])
    first = sealed(world, world.revision)
    # A second policy that keeps the same objects longer, though not long enough: it freezes what the first has frozen.
    second = published(
        world.tenant,
        world.bucket,
        author=world.people["manager"],
        publisher=world.people["manager2"],
        code="second",
        authorisation=PolicyRevision.Authorisation.STANDING,
        period_number=60,
    )
    rival = sealed(world, second)
    assert first.item_count == rival.item_count == 40

    def work(run: CleanupRun) -> Callable[[Say], None]:
        def both(say: Say) -> None:
            publish.publish(run.pk)
            drained(world)(say)

        return both

    with worker(work(first)) as one, worker(work(rival)) as other:
        assert (one.ended(), other.ended()) == (0, 0)
    sweep.sweep()
    # The second policy governs them by now, so what the first run had is withdrawn, and a run of the second takes it up.
    if any(map(world.there, rows)):
        work(sealed(world, second))(print)
    assert sum(keys for _at, keys in world.store.requests()) == 40
    sweep.sweep()
    assert not any(map(world.there, rows))
    destroyed = CleanupCommand.objects.filter(state=CommandState.DELETED)
    assert set(destroyed.values_list("policy", flat=True)) == {second.policy_id}
    assert (
        Receipt.objects.count() == OutboxEvent.objects.filter(type="media.deleted").count() == destroyed.count() == 40
    )
    assert set(CleanupRun.objects.values_list("state", flat=True)) == {RunState.CLOSED}
    invariants.check(world.stores)


def test_a_worker_that_settles_late_changes_nothing(world: Acting) -> None:
    row = world.put("a.mp4")
    run = world.run()
    stopping = Hooked(world.store, after=die_at("delete_versions", number=signal.SIGSTOP))
    with worker(drained(world, stopping)) as child:
        child.stopped()
        world.leases_expire()
        assert world.drain().gone == 1
        child.signal(signal.SIGCONT)
        assert child.heard() == "1 0 1"
        assert child.ended() == 0
    assert world.story("a.mp4") == ["lease_lost", "late deleted", "by_absence"]
    assert_all_destroyed(world, row, run=run)


def test_a_worker_stopped_before_it_sends_comes_back_to_a_deleted_object(world: Acting) -> None:
    row = world.put("a.mp4")
    run = world.run()

    def work(say: Say) -> None:
        world.store.between = lambda gone: gone == 0 and os.kill(os.getpid(), signal.SIGSTOP)
        drained(world)(say)

    with worker(work) as child:
        child.stopped()
        assert world.there(row)
        world.leases_expire()
        world.drain()
        assert world.story("a.mp4") == ["lease_lost", "present"]
        world.due_now()
        world.drain()
        child.signal(signal.SIGCONT)
        assert child.heard() == "1 0 1"
    assert world.story("a.mp4") == ["lease_lost", "late deleted", "present", "deleted"]
    assert_all_destroyed(world, row, run=run)


def test_a_hold_reports_a_stopped_worker_until_its_request_is_settled(world: Acting) -> None:
    row = world.put("a.mp4")
    world.run()
    stopping = Hooked(world.store, after=die_at("delete_versions", number=signal.SIGSTOP))
    with worker(drained(world, stopping)) as child:
        child.stopped()
        placed = hold(world.tenant, world.bucket, "", by=world.people["compliance"])
        report = inflight.placed(placed.pk)
        assert report.in_flight == 1
        assert inflight.ended() == 0
        child.signal(signal.SIGCONT)
        assert child.heard() == "1 1 0"
        assert child.ended() == 0
    sweep.sweep()
    flight = report.commands.get()
    assert (flight.token, flight.ended_as) == (1, "deleted")
    assert_all_destroyed(world, row)


def sealed(world: Acting, revision: PolicyRevision) -> CleanupRun:
    run, _new = runs.open_run(policy=revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    return manifest.freeze(run)
