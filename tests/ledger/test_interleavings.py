"""The twelve nastiest interleavings, each made to happen: by threads with own connections, and by hooks of the store."""

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from cleanup_project.base import clock
from ledger import claim, closing, execute, inflight, manifest, publish, reconcile, retry, runs, settle, sweep
from ledger import drain as draining
from ledger.models import CleanupCommand, CleanupRun, HoldReport, InFlight, ManifestPart, Receipt, Request, SkippedItem
from ledger.states import CommandState, RunState
from retention import catalogue
from retention.models import LegalHold, ObjectVersion, PolicyRevision
from retention.sources.listing import observation
from retention.storage import (
    BucketRef,
    DeleteOutcome,
    Failure,
    FailureClass,
    VersionRef,
)
from retention.storage.client import Reply
from retention.storage.deletes import Deletion
from retention.storage.memory import Fault, MemoryStore
from tests.ledger import invariants
from tests.ledger.acting import EPOCH, Acting, build
from tests.ledger.threads import Beside, Gate, somebody_waits, until
from tests.webhooks.world import enabled_without_ping
from tests.world import hold, published, version
from webhooks import dispatch as dispatching
from webhooks import endpoints, lanes, settlement
from webhooks.models import Delivery, OutboxEvent
from webhooks.sender import Answer

pytestmark = pytest.mark.django_db(transaction=True)

TIMEOUT = Failure.of(FailureClass.TRANSIENT, "ReadTimeoutError", "no answer", ambiguous=True)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is due in an hour, and not at some time within two seconds; `due_now` lets the hour pass."""
    monkeypatch.setattr(retry, "delay", lambda *_: 3600.0)


@pytest.fixture
def world() -> Acting:
    return build()


def held(world: Acting, prefix: str = "") -> LegalHold:
    return hold(world.tenant, world.bucket, prefix, by=world.people["compliance"])


def claimed(world: Acting, n: int = 1000) -> Any:
    return claim.claim(world.bucket.pk, world.tenant.pk, [0, 1, 2], world.bucket.settle_seconds, n)


def once(world: Acting, operation: str, act: Callable[[], object]) -> None:
    """Do something right before the next call of an operation, between its control read and its request."""

    def hook(called: str, _bucket: BucketRef, _refs: Collection[VersionRef]) -> None:
        if called == operation:
            world.store.before_call = None
            act()

    world.store.before_call = hook


def at_rest(world: Acting, **options: Any) -> None:
    sweep.sweep()
    reconcile.look_again(world.stores)
    sweep.sweep()
    invariants.check(world.stores, **options)


def sealed(revision: PolicyRevision) -> CleanupRun:
    run, _new = runs.open_run(policy=revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    return manifest.freeze(run)


def second_policy(world: Acting) -> PolicyRevision:
    """Keeps the same objects longer than the first, and not long enough: later runs of it freeze them, too."""
    return published(
        world.tenant,
        world.bucket,
        author=world.people["manager"],
        publisher=world.people["manager2"],
        code="second",
        authorisation=PolicyRevision.Authorisation.STANDING,
        period_number=60,
    )


def test_1_a_send_that_was_executed_times_out_and_tells_of_its_success_after_a_hold_and_a_takeover(
    world: Acting,
) -> None:
    row = world.put("a")
    world.run()
    batch = claimed(world)
    world.store.inject(Fault("delete_versions", TIMEOUT, executed=True))
    done = execute.execute(batch, world.stores)
    assert not world.there(row)
    world.leases_expire()
    placed = held(world)
    assert inflight.placed(placed.pk).in_flight == 1, "its lease is over, and its request unresolved"
    assert world.drain().gone == 1, "a look is allowed under a hold"
    assert settle.settle(batch, done.verdicts) == settle.Settled(0, 0, 1)
    assert world.story("a") == ["lease_lost", "late ambiguous", "by_absence"]
    at_rest(world)
    assert InFlight.objects.get().ended_as == "by_absence"
    assert world.command("a").state == CommandState.NOTIFIED


def test_2_a_worker_frozen_before_its_send_goes_on_after_a_takeover_saw_the_object_and_parked_it(world: Acting) -> None:
    row = world.put("a")
    world.run()

    def meanwhile() -> None:
        world.leases_expire()
        placed = held(world)
        assert inflight.placed(placed.pk).in_flight == 1
        world.drain()
        world.due_now()
        world.drain()
        assert world.story("a") == ["lease_lost", "present", "held"]
        assert world.command("a").state == CommandState.HELD

    once(world, "delete_versions", meanwhile)
    drained = world.drain()
    assert (drained.late, drained.gone) == (1, 0)
    assert not world.there(row), "nothing can fence a frozen process"
    command = world.command("a")
    assert (command.state, command.inspect_due is not None) == (CommandState.HELD, True)
    at_rest(world)
    command.refresh_from_db()
    assert (command.state, command.incidents.get().from_state) == (CommandState.NOTIFIED, "held")
    assert Receipt.objects.get().outcome == "by_absence"
    assert world.story("a") == ["lease_lost", "late deleted", "present", "held"]


def test_3_a_hold_commits_between_a_claims_lock_and_its_check_and_the_barrier_times_out_twice(
    world: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = world.put("a")
    world.run()
    gate, taken, tries = Gate(), claim.take, list[str]()
    monkeypatch.setattr(inflight, "BARRIER_SECONDS", 0.1)

    def slow(*arguments: Any) -> Any:
        gate()
        return taken(*arguments)

    def counted(hold_id: int) -> HoldReport:
        tries.append("tried")
        return behind(hold_id)

    behind = inflight.report_behind_barrier
    monkeypatch.setattr(claim, "take", slow)
    monkeypatch.setattr(inflight, "report_behind_barrier", counted)
    worker = Beside(world.drain)
    gate.reached()
    placed = held(world)
    report = Beside(inflight.placed, placed.pk)
    until(lambda: len(tries) > 2)
    assert not HoldReport.objects.exists()
    gate.open()
    assert worker.answer().gone == 0
    assert report.answer().in_flight == 0
    assert world.there(row)
    assert world.command("a").state == CommandState.HELD
    assert not Request.objects.exists()
    assert sweep.sweep()["holds"] == 0
    at_rest(world)


def test_3_a_claim_that_checked_before_the_hold_stands_in_its_report(world: Acting) -> None:
    """The other side of the barrier: the claim missed the hold, and its control read does not."""
    row = world.put("a")
    world.put("b")
    world.run()
    batch = claimed(world, 1)
    placed = held(world)
    assert inflight.placed(placed.pk).in_flight == 1
    assert {each.state for each in CleanupCommand.objects.all()} == {"ready", "held"}, "what waited is held at once"
    done = execute.execute(batch, world.stores)
    settle.settle(batch, done.verdicts)
    assert world.there(row)
    assert [call for call, _ in world.store.calls if call == "delete_versions"] == []
    at_rest(world)
    assert InFlight.objects.get().ended_as == "held"


class Splitting(MemoryStore):
    """A store that throttles the first request of a call as a whole, so that the adapter's own code halves it."""

    between: Callable[[], object] = staticmethod(lambda: None)

    def delete_versions(self, bucket: BucketRef, refs: Collection[VersionRef], **options: Any) -> Any:
        asked = list[list[VersionRef]]()

        def ask(operation: str, until: float, **said: Any) -> Reply:
            named = said["Delete"]["Objects"] if operation == "delete_objects" else [said]
            some = [VersionRef(each["Key"], each["VersionId"]) for each in named]
            asked.append(some)
            if len(asked) == 1:
                return Reply({}, 503, "", "r1", True, Failure.of(FailureClass.THROTTLED, "SlowDown", ambiguous=True))
            answers: dict[VersionRef, DeleteOutcome] = {ref: self._delete(bucket, ref) for ref in some}
            assert all(each.acknowledged for each in answers.values())
            self.between()
            gone = [{"Key": ref.key, "VersionId": ref.version_id} for ref in some]
            return Reply({"Deleted": gone}, 200 if len(some) > 1 else 204, "", f"r{len(asked)}", True)

        self.calls.append(("delete_versions", tuple(refs)))
        ends = options["deadline_seconds"] + execute.time.monotonic()
        return Deletion(ask, list(refs), ends, options["proceed"]).run()


def test_4_a_hold_lands_between_the_halves_of_a_batch_that_the_store_had_split() -> None:
    world = build(Splitting())
    rows = [world.put(key) for key in "abcd"]
    world.run()
    world.store.between = lambda: held(world)
    world.drain()
    assert [world.there(row) for row in rows] == [False, False, True, True]
    placed = LegalHold.objects.get()
    assert inflight.placed(placed.pk).in_flight == 2, "the other half was throttled: it may have been executed"
    world.due_now()
    world.drain()
    world.due_now()
    world.drain()
    assert [world.story(key) for key in "ad"] == [["deleted"], ["ambiguous", "present", "held"]]
    assert [world.there(row) for row in rows] == [False, False, True, True]
    at_rest(world)


def test_5_the_answer_to_a_settled_commit_is_lost_and_the_worker_settles_again_while_others_take_over(
    world: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put("a")
    failing = world.put("b")
    world.run()
    refs = frozenset({VersionRef(failing.key, failing.version_id)})
    world.store.inject(Fault("delete_versions", Failure.of(FailureClass.TRANSIENT, "Busy"), refs=refs))
    settled = list[settle.Settled]()

    def lossy(batch: Any, verdicts: Any) -> settle.Settled:
        settled.append(settle.settle(batch, verdicts))
        if len(settled) == 1:
            world.due_now()
            assert claimed(world).claimed == 1, "the failed one has another worker by now"
            raise OperationalError("server closed the connection unexpectedly")
        return settled[-1]

    monkeypatch.setattr(draining, "settle", lossy)
    monkeypatch.setattr(draining, "SETTLE_AGAIN", (0.0,))
    world.drain()
    assert settled[:2] == [settle.Settled(2, 1, 0), settle.Settled(0, 0, 0)]
    assert world.story("a") == ["deleted"]
    assert world.story("b") == ["failed"]
    world.leases_expire()
    world.drain()
    assert world.story("b") == ["failed", "lease_lost", "deleted"]
    at_rest(world)


def test_6_tokens_that_are_lost_in_mid_settle_get_no_receipt(world: Acting) -> None:
    world.fill([f"{n:03}" for n in range(100)])
    world.run()
    batch = claimed(world)
    done = execute.execute(batch, world.stores)
    lost = sorted(each.id for each in batch.commands)[::10]
    world.leases_expire()
    with transaction.atomic(), connection.cursor() as cursor:
        # A takeover of ten of them that has not committed yet: the settlement waits for their rows.
        cursor.execute("SELECT FROM ledger_cleanupcommand WHERE id = ANY (%s) ORDER BY id FOR NO KEY UPDATE", [lost])
        settling = Beside(settle.settle, batch, done.verdicts)
        until(somebody_waits)
        cursor.execute(
            "UPDATE ledger_cleanupcommand SET lease_token = lease_token + 1, claims = claims + 1, "
            "lease_losses = lease_losses + 1 WHERE id = ANY (%s)",
            [lost],
        )
        cursor.execute(
            "INSERT INTO ledger_attempt (command_id, token, late, cycle, outcome, charged, failure_class, detail, "
            "claimed_at, worker) SELECT id, lease_token - 1, false, 0, 'lease_lost', false, '', '', now(), 'w' "
            "FROM ledger_cleanupcommand WHERE id = ANY (%s)",
            [lost],
        )
    assert settling.answer() == settle.Settled(90, 90, 10)
    assert Receipt.objects.count() == OutboxEvent.objects.filter(type="media.deleted").count() == 90
    assert not Receipt.objects.filter(command_id__in=lost).exists()
    world.leases_expire()
    world.due_now()
    world.drain()
    assert Receipt.objects.filter(command_id__in=lost, outcome="by_absence").count() == 10
    at_rest(world)


def test_7_the_older_version_is_denied_while_another_drain_has_the_current_one(world: Acting) -> None:
    older = world.put("a", b"1", stored_at=EPOCH - timedelta(days=1))
    current = world.put("a", b"2")
    world.run()
    refs = frozenset({VersionRef(older.key, older.version_id)})
    world.store.inject(Fault("delete_versions", Failure.of(FailureClass.PERMISSION, "AccessDenied"), refs=refs))

    def meanwhile() -> None:
        world.due_now()
        assert world.drain(budget_seconds=1.0).gone == 0, "the current one waits, whoever takes it"

    once(world, "delete_versions", meanwhile)
    world.drain()
    world.due_now()
    world.drain()
    assert (world.there(older), world.there(current)) == (True, True)
    assert set(CleanupCommand.objects.values_list("state", "failure_class")) == {
        ("dead", "permission"),
        ("dead", "older_version"),
    }
    assert {refs for call, refs in world.store.calls if call == "delete_versions"} == {
        (VersionRef(older.key, older.version_id),)
    }
    at_rest(world)


def test_8_a_scheduler_dies_before_its_part_commits_and_another_freezes_it_although_the_catalogue_changed(
    world: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "PART_SIZE", 3)
    world.fill([f"{n}" for n in range(8)])
    run, _new = runs.open_run(policy=world.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    manifest.freeze_part(run)
    gate, write, digests = Gate(), manifest.write_part, list[str]()

    class Died(Exception):
        pass

    def dying(*arguments: Any) -> ManifestPart:
        part = write(*arguments)
        digests.append(part.digest)
        if len(digests) == 1:
            gate()
            raise Died
        return part

    monkeypatch.setattr(manifest, "write_part", dying)
    first = Beside(manifest.freeze_part, run)
    gate.reached()
    second = Beside(manifest.freeze_part, run)
    until(somebody_waits)
    version(world.bucket, world.tenant, "1b", first_observed_at=clock.now())  # between two of them, after as_of
    gate.open()
    with pytest.raises(Died):
        first.answer()
    part = second.answer()
    assert (part.number, part.item_count) == (2, 3)
    assert part.digest == digests[0], "the same part, byte by byte"
    manifest.freeze(run)
    run.refresh_from_db()
    assert (run.item_count, run.parts.count()) == (8, 3)
    invariants.check()


@pytest.mark.parametrize("rolls_back", [True, False])
def test_9_two_policies_publish_overlapping_originals_and_a_shared_derivative_and_one_rolls_back(
    world: Acting, monkeypatch: pytest.MonkeyPatch, rolls_back: bool
) -> None:
    for key in "abc":
        world.put(key)
    small = world.store.put(world.place, "thumbs/a", b"x")
    first_row = world.versions["a"][0]
    version(
        world.bucket,
        world.tenant,
        "thumbs/a",
        version_id=small.version_id,
        etag=first_row.etag,
        size=1,
        listed_at=clock.now(),
        original_key="a",
        original_version_id=first_row.version_id,
    )
    first, rival = sealed(world.revision), sealed(second_policy(world))
    assert first.target_count == rival.target_count == 4
    gate, begin = Gate(), publish.begin_draining

    class RolledBack(Exception):
        pass

    def slow(run: CleanupRun, part: ManifestPart) -> None:
        begin(run, part)
        if run.pk == first.pk and not gate.is_open:
            gate()
            if rolls_back:
                raise RolledBack

    monkeypatch.setattr(publish, "begin_draining", slow)
    one = Beside(publish.publish, first.pk)
    gate.reached()
    other = Beside(publish.publish, rival.pk)
    until(somebody_waits)
    gate.open()
    if rolls_back:
        with pytest.raises(RolledBack):
            one.answer()
    else:
        one.answer()
    other.answer()
    assert CleanupCommand.objects.count() == 3
    assert set(CleanupCommand.objects.values_list("run_id", flat=True)) == {rival.pk if rolls_back else first.pk}
    publish.publish(first.pk)
    assert first.skipped.count() + rival.skipped.count() == 3
    world.drain()
    at_rest(world)
    assert {run.state for run in CleanupRun.objects.all()} == {RunState.CLOSED}


def test_10_a_run_is_cancelled_in_its_cooling_off_and_the_same_revision_scans_again() -> None:
    world = build(cooling_off_minutes=60)
    world.put("a")
    first = sealed(world.revision)
    assert first.state == RunState.COOLING_OFF
    cancelling = Beside(runs.cancel, run=first, by=world.people["operator"], reason="Not yet")
    cancelling.answer()
    second = sealed(world.revision)
    CleanupRun.objects.filter(pk=second.pk).update(cooling_until=EPOCH)
    assert runs.authorise_cooled() == 1
    assert publish.publish(first.pk) == []
    publish.publish(second.pk)
    assert world.command("a").run_id == second.pk
    world.drain()
    at_rest(world)
    second.refresh_from_db()
    assert second.counts == {"deleted": 1}


def test_10_a_run_is_cancelled_in_mid_drain_and_a_later_one_takes_over_what_was_sent_and_what_was_not(
    world: Acting,
) -> None:
    for key in "ab":
        world.put(key)
    first = world.run()

    def meanwhile() -> None:
        runs.cancel(run=first, by=world.people["operator"], reason="Wrong scope")
        closing.withdraw()
        assert world.command("a").state == CommandState.READY, "it is its worker's"
        assert world.command("b").state == CommandState.WITHDRAWN

    once(world, "inspect", meanwhile)
    CleanupCommand.objects.filter(targets__key="b").update(due_at=clock.now() + timedelta(hours=1))
    world.drain()
    assert world.story("a") == ["deleted"], "it was sent before the run was cancelled"
    second = world.run()
    adopted = world.command("b")
    assert (adopted.run_id, adopted.cycle) == (second.pk, 1)
    world.drain()
    at_rest(world)
    assert world.story("b") == ["deleted"]


@pytest.mark.parametrize("looks", [True, False], ids=["before the look", "after it"])
def test_10_a_later_run_leaves_what_a_worker_has_in_hand_to_the_run_that_it_was_claimed_under(
    world: Acting, looks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker claims before the later run looks for that, or between its look and its locks."""
    world.put("a")
    first = world.run()
    later = list[CleanupRun]()
    if not looks:
        monkeypatch.setattr(publish, "in_hand", lambda run, first, last: False)

    def meanwhile() -> None:
        runs.cancel(run=first, by=world.people["operator"], reason="Wrong scope")
        closing.withdraw()
        later.append(world.run())

    once(world, "inspect", meanwhile)
    world.drain()
    (second,) = later
    second.refresh_from_db()
    assert second.published_parts == (0 if looks else 1)
    publish.publish(second.pk)
    at_rest(world)
    second.refresh_from_db()
    assert Receipt.objects.get().run_id == world.command("a").run_id == first.pk
    assert second.counts == {"withdrawn": 1}
    reason = SkippedItem.objects.get().reason
    assert reason == (
        "Its command has succeeded already."
        if looks
        else "A worker has it in hand for an earlier run: a later one decides."
    )


def test_10_a_later_run_waits_for_what_a_worker_gives_back_and_takes_it_over(
    world: Acting, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put("a")
    first = world.run()
    later = list[CleanupRun]()
    execute_batch = draining.execute

    def between(*batch: Any) -> Any:
        if not later:
            runs.cancel(run=first, by=world.people["operator"], reason="Wrong scope")
            later.append(world.run())
            assert publish.publish(later[0].pk) == []
        return execute_batch(*batch)

    monkeypatch.setattr(draining, "execute", between)
    world.drain()
    assert world.command("a").lease_until is None, "nothing was sent: the control row had changed"
    assert closing.withdraw() == 1
    (second,) = later
    publish.publish(second.pk)
    world.drain()
    at_rest(world)
    second.refresh_from_db()
    assert (world.command("a").run_id, second.counts) == (second.pk, {"deleted": 1})


def test_11_two_endpoints_acknowledge_at_once_and_one_is_disabled_while_events_are_emitted(world: Acting) -> None:
    one, two = (world.subscribe(name, ["media.deleted"]) for name in ("one", "two"))
    for key in "abc":
        world.put(key, asset="album", series=key)
    world.run()
    endpoints.disable(endpoint=two, by=world.people["operator"], reason="Moving")
    world.drain()
    assert Delivery.objects.count() == 6, "a disabled endpoint is owed its deliveries"
    assert dispatching.claim_from(two.pk, 8) == []
    enabled_without_ping(two)
    for _ in range(3):
        heads = [*dispatching.claim_from(one.pk, 8), *dispatching.claim_from(two.pk, 8)]
        assert len(heads) == 2, "one head for each endpoint and lane"
        gate = Gate()
        # The first acknowledgement is written and not committed while the second comes.
        first = Beside(acknowledge, heads[0], gate)
        gate.reached()
        second = Beside(acknowledge, heads[1])
        until(somebody_waits)
        gate.open()
        first.answer()
        second.answer()
    assert not OutboxEvent.objects.filter(settled_at=None).exists()
    assert closing.notify() == 3
    at_rest(world)


def acknowledge(head: Any, gate: Gate | None = None) -> None:
    answer = Answer(204, "", "", b"", 1)
    with pytest.MonkeyPatch.context() as patch:
        if gate is not None:
            promote = lanes.promote

            def slow(*arguments: Any) -> Any:
                done = promote(*arguments)
                gate()
                return done

            patch.setattr(lanes, "promote", slow)
        settlement.settle(dispatching.record([(head, answer)], dispatching.Dispatched()))


def test_12_a_page_that_was_listed_before_the_deletion_is_recorded_after_its_settlement(world: Acting) -> None:
    row = world.put("a")
    world.run()
    asked_at = clock.now()
    page = world.store.list_versions(world.place)
    world.drain()
    assert not world.there(row)
    seen = [observation(each) for each in page.versions]
    catalogue.record(world.bucket, seen, observed_at=asked_at, source=ObjectVersion.Source.LISTING)
    row.refresh_from_db()
    assert (row.gone_reason, row.survived_at) == ("destroyed", None)
    again, _new = runs.open_run(policy=world.revision.policy, by=None, mode=CleanupRun.Mode.DRY_RUN)
    assert manifest.freeze(again).item_count == 0
    at_rest(world)
