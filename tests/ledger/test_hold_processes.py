"""A hold wins until the delete call, against workers that are processes: frozen, killed, in mid-claim and in mid-batch."""

import signal
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest

from cleanup_project.base import clock
from ledger import claim, inflight, reconcile, retry, sweep
from ledger import drain as draining
from ledger.explain import explain
from ledger.models import Attempt, CleanupCommand, CleanupRun, CommandTarget, HoldReport, InFlight, Receipt, Request
from ledger.states import RunState
from ledger.telling import answers
from retention.models import LegalHold
from retention.storage import VersionRef
from tests.ledger import invariants
from tests.ledger.acting import Acting, build
from tests.ledger.processes import Child, Say, stop_at, stop_before, worker
from tests.ledger.recorded import RecordedStore
from tests.world import hold

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is due in an hour, and not at some time within two seconds; `due_now` lets the hour pass."""
    monkeypatch.setattr(retry, "delay", lambda *_: 3600.0)


@pytest.fixture
def world(tmp_path: Path) -> Acting:
    return build(RecordedStore(tmp_path / "store"))


def drains(world: Acting, prepare: Callable[[], object] = lambda: None) -> Callable[[Say], None]:
    """The work of a process that prepares where it will stop, drains, and says what it did."""

    def work(say: Say) -> None:
        prepare()
        done = draining.drain(world.bucket.pk, stores=world.stores)
        say(f"{done.claimed} {done.gone} {done.late}")

    return work


def at_request(world: Acting, point: str, nth: int = 1) -> Callable[[], None]:
    return lambda: setattr(world.store, point, stop_at(nth))


def drained_apart(world: Acting) -> str:
    """What a process of its own says that it drained."""
    with worker(drains(world)) as child:
        said = child.heard()
        assert child.ended() == 0
    return said


def held(world: Acting, prefix: str = "") -> tuple[LegalHold, datetime]:
    """A hold, and a time at which it had been committed."""
    return hold(world.tenant, world.bucket, prefix, by=world.people["compliance"]), clock.now()


def reports(placed: LegalHold) -> Callable[[Say], None]:
    """The work of a process that reports what is in flight: it says so before each try, and then how much it found."""

    def work(say: Say) -> None:
        behind = inflight.report_behind_barrier

        def told(hold_id: int) -> HoldReport:
            say("tries")
            return behind(hold_id)

        inflight.BARRIER_SECONDS = 0.1
        inflight.report_behind_barrier = told
        say(str(inflight.placed(placed.pk).in_flight))

    return work


def found(reporter: Child) -> int:
    """How much a reporting process found in flight."""
    while (said := reporter.heard()) == "tries":
        pass
    assert reporter.ended() == 0
    return int(said)


def assert_the_hold_won(world: Acting, placed: LegalHold, committed: datetime, prefix: str = "") -> None:
    """No request behind the hold; what went before it is settled or reported, with its end; all at rest and readable."""
    CleanupCommand.objects.exclude(inspect_due=None).update(inspect_due=clock.now())  # the settle time is over
    sweep.sweep()
    reconcile.look_again(world.stores)
    sweep.sweep()
    late = [key for at, key in world.store.keys_sent() if at > committed and key.startswith(prefix)]
    assert late == [], "sent although the control read came behind the hold"
    report = HoldReport.objects.get(hold=placed)
    reported = dict(report.commands.exclude(ended_at=None).values_list("command_id", "ended_as"))
    assert report.in_flight == len(reported), "not all that was in flight has an end"
    before = Attempt.objects.filter(outcome="deleted", late=False, settled_at__lt=report.reported_at)
    told = set(before.values_list("command_id", flat=True)) | set(reported)
    covered = CommandTarget.objects.filter(key__startswith=prefix).select_related("command")
    gone = [each for each in covered if not there(world, each)]
    assert {each.command_id for each in gone} <= told, "gone, and neither settled before the report nor in it"
    assert {each.command.state for each in covered if each not in gone} <= {"held"}
    assert set(CleanupCommand.objects.values_list("state", flat=True)) <= {"held", "notified"}
    assert {run.state for run in CleanupRun.objects.all()} == {RunState.CLOSED}
    invariants.check(world.stores)
    stories = {tuple(world.story(each.key)): each.command.key for each in covered}
    for key in stories.values():
        assert all(sentences for _question, sentences in answers(explain(key)))


def there(world: Acting, target: CommandTarget) -> bool:
    return bool(world.store.path(world.place, VersionRef(target.key, target.version_id)).exists())


@pytest.mark.parametrize(
    ("then", "stories"),
    [
        (signal.SIGCONT, [["lease_lost", "late deleted", "by_absence"], ["lease_lost", "late ambiguous", "present", "held"]]),
        (signal.SIGKILL, [["lease_lost", "by_absence"], ["lease_lost", "present", "held"]]),
    ],
    ids=["goes on", "dies"],
)  # fmt: skip
def test_1_a_request_outlives_its_lease_and_a_hold_and_a_takeover_come_before_its_success_is_known(
    world: Acting, then: int, stories: list[list[str]]
) -> None:
    rows = world.fill(["a", "b"])
    world.run()
    world.store.throttled = 1
    with worker(drains(world, at_request(world, "sent"))) as child:
        child.stopped()
        assert [world.there(row) for row in rows] == [False, True]
        world.leases_expire()
        placed, committed = held(world)
        assert inflight.placed(placed.pk).in_flight == 2, "their lease is over, and their requests unresolved"
        assert set(CleanupCommand.objects.values_list("state", flat=True)) == {"ready"}
        assert drained_apart(world) == "2 1 0", "a look is allowed under a hold"
        world.due_now()
        assert drained_apart(world) == "1 0 0"
        child.signal(then)
        assert child.ended() == (0 if then == signal.SIGCONT else -then)
    assert [world.story(key) for key in "ab"] == stories
    assert [world.there(row) for row in rows] == [False, True]
    assert_the_hold_won(world, placed, committed)
    assert [InFlight.objects.get(command=world.command(key)).ended_as for key in "ab"] == ["by_absence", "present"]
    assert Receipt.objects.get().outcome == "by_absence"


@pytest.mark.parametrize("then", [signal.SIGCONT, signal.SIGKILL], ids=["goes on", "dies"])
def test_2_a_worker_frozen_between_its_control_read_and_its_request_ends_after_a_takeover_parked_the_object(
    world: Acting, then: int
) -> None:
    row = world.put("a")
    world.run()
    with worker(drains(world, at_request(world, "sending"))) as child:
        child.stopped()
        world.leases_expire()
        placed, committed = held(world)
        assert inflight.placed(placed.pk).in_flight == 1
        assert drained_apart(world) == "1 0 0"
        world.due_now()
        assert drained_apart(world) == "1 0 0"
        assert world.story("a") == ["lease_lost", "present", "held"]
        child.signal(then)
        assert child.ended() == (0 if then == signal.SIGCONT else -then)
    went = then == signal.SIGCONT
    assert world.there(row) is not went, "nothing can fence a frozen process"
    assert_the_hold_won(world, placed, committed)
    command = world.command("a")
    assert [each.from_state for each in command.incidents.all()] == ["held"] * went
    assert world.story("a") == ["lease_lost", *["late deleted"] * went, "present", "held"]
    assert command.state == ("notified" if went else "held")
    assert InFlight.objects.get().ended_as == "present"


def test_3_a_hold_commits_between_a_claims_lock_and_its_check_and_the_barrier_is_tried_again_and_again(
    world: Acting,
) -> None:
    row = world.put("a")
    world.run()
    with worker(drains(world, lambda: stop_before(claim, "take"))) as child:
        child.stopped()
        placed, committed = held(world)
        with worker(reports(placed)) as reporter:
            assert [reporter.heard() for _ in range(3)] == ["tries"] * 3
            assert not HoldReport.objects.exists()
            child.signal(signal.SIGCONT)
            assert child.heard() == "1 0 0"
            assert found(reporter) == 0
    assert world.there(row)
    assert world.story("a") == ["held"]
    assert not Request.objects.exists()
    assert_the_hold_won(world, placed, committed)


def test_3_a_claim_that_checked_before_the_hold_and_commits_behind_it_stands_in_the_report(world: Acting) -> None:
    row = world.put("a")
    world.run()

    def prepare() -> None:
        stop_before(claim, "write")
        stop_before(draining, "execute")

    with worker(drains(world, prepare)) as child:
        child.stopped()
        placed, committed = held(world)
        with worker(reports(placed)) as reporter:
            assert [reporter.heard() for _ in range(3)] == ["tries"] * 3
            child.signal(signal.SIGCONT)
            child.stopped()
            assert found(reporter) == 1, "the barrier waited for it"
        child.signal(signal.SIGCONT)
        assert child.heard() == "1 0 0"
    assert world.there(row)
    assert world.story("a") == ["held"], "it was looked at again, and nothing of it was tried"
    assert world.store.keys_sent() == []
    assert_the_hold_won(world, placed, committed)
    assert InFlight.objects.get().ended_as == "held"


@pytest.mark.parametrize("then", [signal.SIGSTOP, signal.SIGKILL], ids=["stands still", "dies"])
def test_3_a_worker_that_stands_still_or_dies_in_its_claim_keeps_no_hold_from_its_report(
    world: Acting, then: int
) -> None:
    row = world.put("a")
    world.run()

    def prepare() -> None:
        claim.CLAIM_SECONDS = 3 if then == signal.SIGSTOP else 3600
        stop_before(claim, "write")

    with worker(drains(world, prepare)) as child:
        child.stopped()
        placed, committed = held(world)
        if then == signal.SIGKILL:
            child.signal(then)
        assert inflight.placed(placed.pk).in_flight == 0, "its claim is undone"
        if then == signal.SIGSTOP:
            child.signal(signal.SIGCONT)
        assert child.ended() == (1 if then == signal.SIGSTOP else -then)
    assert drained_apart(world) == "0 0 0"
    assert world.there(row)
    assert world.command("a").state == "held"
    assert_the_hold_won(world, placed, committed)


def test_4_a_hold_lands_between_the_halves_of_a_batch_that_the_store_had_split(world: Acting) -> None:
    rows = world.fill(["a", "b", "c", "d"])
    world.run()
    world.store.throttled = 1
    with worker(drains(world, at_request(world, "reading", 3))) as child:
        child.stopped()
        assert [world.there(row) for row in rows] == [False, False, True, True]
        placed, committed = held(world)
        assert inflight.placed(placed.pk).in_flight == 4
        assert inflight.ended() == 0
        child.signal(signal.SIGCONT)
        assert child.heard() == "4 2 0"
    assert world.command("c").inspect_due is not None, "throttled, it may have been executed all the same"
    world.due_now()
    assert drained_apart(world) == "2 0 0"
    world.due_now()
    assert drained_apart(world) == "2 0 0"
    assert [world.there(row) for row in rows] == [False, False, True, True]
    assert [world.story(key) for key in "ad"] == [["deleted"], ["ambiguous", "present", "held"]]
    assert_the_hold_won(world, placed, committed)
    assert sorted(InFlight.objects.values_list("ended_as", flat=True)) == ["deleted"] * 2 + ["present"] * 2


TURN = 3  # of each worker, in which it stops
WHERE: dict[str, Callable[[Acting], object]] = {
    "behind the lock": lambda world: stop_before(claim, "take", TURN),
    "behind the check": lambda world: stop_before(claim, "write", TURN),
    "behind the claim": lambda world: None,
    "before the control read": lambda world: at_request(world, "reading", TURN)(),
    "before the request": lambda world: at_request(world, "sending", TURN)(),
    "before the settlement": lambda world: at_request(world, "sent", TURN)(),
}


def test_a_hold_placed_while_six_workers_drain_hundreds_of_keys(world: Acting) -> None:
    """Each of them stands at another point of its way when the hold commits, and goes on once the report is written."""
    world.fill([f"{folder}/{n:03}" for n in range(300) for folder in ("case", "clips")])
    world.run()
    covered = CleanupCommand.objects.filter(targets__key__startswith="case/")

    def drains_until(where: str) -> Callable[[Say], None]:
        def prepare() -> None:
            claim.BATCH = 20
            WHERE[where](world)
            if where in ("behind the check", "behind the claim"):
                stop_before(draining, "execute", TURN)

        return drains(world, prepare)

    with ExitStack() as started:
        workers = {where: started.enter_context(worker(drains_until(where))) for where in WHERE}
        for child in workers.values():
            child.stopped()
        placed, committed = held(world, "case/")
        reporter = started.enter_context(worker(reports(placed)))
        assert [reporter.heard() for _ in range(2)] == ["tries"] * 2
        workers["behind the check"].signal(signal.SIGCONT)
        workers["behind the check"].stopped()
        workers["behind the lock"].signal(signal.SIGCONT)
        in_flight = found(reporter)
        leased = set(covered.filter(state="ready").values_list("pk", "lease_token"))
        assert set(InFlight.objects.values_list("command_id", "token")) == leased, "all that is under way, and no more"
        assert len(leased) == in_flight > 0
        for where, child in workers.items():
            if where != "behind the lock":
                child.signal(signal.SIGCONT)
        assert [child.ended() for child in workers.values()] == [0] * len(WHERE)
    assert_the_hold_won(world, placed, committed, "case/")
    ends = set(InFlight.objects.values_list("ended_as", flat=True))
    assert ends == {"deleted", "held", "not_sent"}
    assert set(CleanupCommand.objects.exclude(pk__in=covered).values_list("state", flat=True)) == {"notified"}
    receipts = Receipt.objects.filter(command_id__in=covered.values("pk"))
    assert receipts.count() + covered.filter(state="held").count() == 300
