"""Every class of failure from the store's answer to the command's end, against a store in memory."""

from datetime import timedelta
from hashlib import md5
from typing import Any

import pytest

from cleanup_project.base import clock
from ledger import claim, closing, execute, runs, settle
from ledger.models import CleanupCommand, DeadLetter, Pace, Receipt, Request
from ledger.states import CommandState, RunState
from retention import control
from retention.buckets import ref
from retention.models import Bucket, ObjectVersion, PolicyRevision, StopSwitch
from retention.storage import Failure, FailureClass, VersionRef
from retention.storage.memory import Fault
from tests.ledger import invariants
from tests.ledger.acting import EPOCH, Acting, build
from tests.world import enforced, version

pytestmark = pytest.mark.django_db

TIMEOUT = Failure.of(FailureClass.TRANSIENT, "ReadTimeoutError", "no answer", ambiguous=True)


@pytest.fixture
def world() -> Acting:
    made = build()
    made.subscribe()
    return made


def failing(world: Acting, kind: FailureClass, *rows: ObjectVersion, times: int = 1, **fields: Any) -> None:
    """The next deletions of the rows (of all, if none is named) fail with this class."""
    failure = Failure.of(kind, fields.pop("code", "Code"), "said the store", ambiguous=fields.pop("ambiguous", False))
    refs = frozenset(VersionRef(row.key, row.version_id) for row in rows) or None
    world.store.inject(Fault("delete_versions", failure, refs=refs, **fields), times=times)


def again(world: Acting, times: int = 1) -> None:
    for _ in range(times):
        world.due_now()
        world.drain()


def ended_well(world: Acting, **options: Any) -> None:
    world.settled()
    invariants.check(world.stores, **options)


def quarantined(world: Acting, key: str, kind: str) -> DeadLetter:
    command = world.command(key)
    assert (command.state, command.failure_class) == (CommandState.DEAD, kind)
    entry = command.dead_letters.get()
    assert entry.failure_class == kind
    assert entry.next_action
    return entry


def thumbnail(world: Acting, original: ObjectVersion, *, bucket: Bucket | None = None) -> ObjectVersion:
    """A derivative of exactly this original, in its bucket or in another."""
    place = bucket or world.bucket
    name = world.store.put(ref(place), f"thumbs/{original.key}", b"t")
    return version(
        place,
        world.tenant,
        name.key,
        version_id=name.version_id,
        etag=md5(b"t", usedforsecurity=False).hexdigest(),
        size=1,
        listed_at=clock.now(),
        original_key=original.key,
        original_version_id=original.version_id,
        original_bucket=world.bucket,
    )


def test_a_transient_failure_is_tried_again_with_backoff(world: Acting) -> None:
    row = world.put("a")
    run = world.run()
    failing(world, FailureClass.TRANSIENT)
    world.drain()
    command = world.command("a")
    assert (command.state, command.attempts) == (CommandState.READY, 1)
    assert command.due_at > command.published_at
    again(world)
    assert world.story("a") == ["failed", "deleted"]
    assert not world.there(row)
    ended_well(world)
    run.refresh_from_db()
    assert run.state == RunState.CLOSED


def test_a_failure_that_lasts_goes_to_quarantine_after_eight_attempts(world: Acting) -> None:
    world.put("a")
    world.run()
    failing(world, FailureClass.TRANSIENT, times=9)
    again(world, 8)
    entry = quarantined(world, "a", "transient")
    assert (entry.attempts, world.story("a")) == (8, ["failed"] * 8)
    assert "said the store" in entry.first_error
    ended_well(world)


def test_throttling_lowers_the_rate_once_a_second_and_charges_nobody(world: Acting) -> None:
    Bucket.objects.filter(pk=world.bucket.pk).update(keys_per_second=1000)
    for key in "abc":
        world.put(key)
    world.run()
    gap = Pace.objects.get().gap
    failing(world, FailureClass.THROTTLED, code="SlowDown")
    again(world)
    Pace.objects.update(last_cut=clock.now() + timedelta(hours=1))  # the second since the last cut does not pass
    failing(world, FailureClass.THROTTLED, times=2, code="SlowDown")
    again(world, 2)
    assert Pace.objects.get().gap == pytest.approx(2 * gap)
    assert set(CleanupCommand.objects.values_list("attempts", flat=True)) == {0}
    Pace.objects.update(last_cut=EPOCH)
    failing(world, FailureClass.THROTTLED, code="SlowDown")
    again(world)
    assert Pace.objects.get().gap == pytest.approx(4 * gap)
    again(world)
    assert world.story("a") == ["failed"] * 4 + ["deleted"]
    ended_well(world)


def test_a_timeout_that_was_executed_is_found_by_absence_and_sent_once(world: Acting) -> None:
    row = world.put("a")
    world.run()
    world.store.inject(Fault("delete_versions", TIMEOUT, executed=True))
    world.drain()
    command = world.command("a")
    assert command.inspect_due is not None
    assert command.inspect_due >= command.changed_at + timedelta(seconds=world.bucket.settle_seconds - 1)
    assert command.due_at == command.inspect_due
    assert world.drain().claimed == 0, "nobody looks before the store has settled"
    assert not world.there(row)
    again(world)
    assert world.story("a") == ["ambiguous", "by_absence"]
    assert [each for each, _ in world.store.calls].count("delete_versions") == 1
    ended_well(world)


def test_a_timeout_that_was_not_executed_is_looked_at_and_then_tried_again(world: Acting) -> None:
    world.put("a")
    world.run()
    world.store.inject(Fault("delete_versions", TIMEOUT))
    again(world, 3)
    assert world.story("a") == ["ambiguous", "present", "deleted"]
    ended_well(world)


def test_a_denied_key_goes_to_quarantine_at_once_and_the_others_go_on(world: Acting) -> None:
    denied = world.put("a")
    world.put("b")
    run = world.run()
    failing(world, FailureClass.PERMISSION, denied)
    world.drain()
    quarantined(world, "a", "permission")
    assert world.story("b") == ["deleted"]
    ended_well(world)
    run.refresh_from_db()
    assert run.counts == {"dead": 1, "deleted": 1}


def test_retention_of_the_store_holds_a_command_until_it_ends_and_a_later_run_adopts_it(world: Acting) -> None:
    row = world.put("a")
    first = world.run()
    until = clock.now() + timedelta(days=3)
    name = VersionRef(row.key, row.version_id)
    world.store.lock(world.place, name, mode="COMPLIANCE", retain_until=until)
    world.drain()
    command = world.command("a")
    assert (command.state, command.held_by, command.held_until) == (CommandState.HELD, "store", until)
    ended_well(world)
    first.refresh_from_db()
    assert (first.state, first.counts) == (RunState.CLOSED, {"held": 1})

    early = world.run()
    assert early.skipped.get().reason == "The store still retains it."
    ended_well(world)
    CleanupCommand.objects.filter(pk=command.pk).update(held_until=EPOCH)
    world.store.lock(world.place, name)
    late = world.run()
    command.refresh_from_db()
    assert (command.state, command.cycle, command.run_id) == (CommandState.READY, 1, late.pk)
    world.drain()
    assert world.story("a") == ["failed", "deleted"]
    assert command.decisions.get().kind == "adopted"
    ended_well(world)


def test_a_legal_hold_of_the_store_holds_a_command_without_a_known_end(world: Acting) -> None:
    row = world.put("a")
    world.run()
    world.store.lock(world.place, VersionRef(row.key, row.version_id), legal_hold=True)
    world.drain()
    command = world.command("a")
    assert (command.state, command.held_by, command.held_until) == (CommandState.HELD, "store", None)
    assert command.attempts == 0
    ended_well(world)


def test_what_is_not_what_was_frozen_is_never_deleted(world: Acting) -> None:
    row = world.put("a")
    ObjectVersion.objects.filter(pk=row.pk).update(etag="0" * 32, listed_at=None)
    world.run()
    world.drain()
    quarantined(world, "a", "version_mismatch")
    assert world.there(row)
    assert not Request.objects.exists()
    ended_well(world)


def test_a_version_id_that_the_store_does_not_know_and_still_shows_goes_to_quarantine(world: Acting) -> None:
    row = world.put("a")
    world.run()
    failing(world, FailureClass.MALFORMED_VERSION, row)
    world.drain()
    quarantined(world, "a", "malformed_version")
    ended_well(world)


def test_a_version_id_that_the_store_no_longer_knows_is_gone(world: Acting) -> None:
    row = world.put("a")
    world.run()
    failing(world, FailureClass.MALFORMED_VERSION, row, executed=True)
    world.drain()
    assert world.story("a") == ["deleted"]
    ended_well(world)


def test_a_missing_bucket_pauses_the_drain_and_proves_nothing(world: Acting) -> None:
    world.put("a")
    world.put("b")
    world.run()
    kept = world.store._buckets.copy()
    world.store.drop_bucket(world.place)
    for _ in range(3):
        world.due_now()
        assert world.drain().paused.startswith("bucket_missing")
    quarantined(world, "a", "bucket_missing")
    assert not Receipt.objects.exists()
    world.store._buckets.update(kept)
    ended_well(world)


def test_wrong_credentials_pause_the_drain_and_charge_nobody(world: Acting) -> None:
    world.put("a")
    world.run()
    failing(world, FailureClass.CREDENTIALS, times=12, code="ExpiredToken")
    for _ in range(12):
        world.due_now()
        assert world.drain().paused.startswith("credentials: ExpiredToken")
    command = world.command("a")
    assert (command.state, command.attempts, command.claims) == (CommandState.READY, 0, 12)
    again(world)
    assert world.story("a")[-1] == "deleted"
    ended_well(world)


def test_what_was_gone_before_we_asked_waits_for_a_person(world: Acting) -> None:
    row = world.put("a")
    world.run()
    name = taken_away(world, row)
    world.drain()
    quarantined(world, "a", "already_absent")
    assert not Receipt.objects.exists()
    assert not Request.objects.exists()
    ended_well(world, removed=[name])


def test_what_was_gone_before_we_asked_is_a_success_where_the_policy_says_so() -> None:
    world = build(already_absent=PolicyRevision.AlreadyAbsent.SUCCESS)
    row = world.put("a")
    run = world.run()
    taken_away(world, row)
    world.drain()
    assert (world.command("a").outcome, Receipt.objects.get().outcome) == ("already_absent", "already_absent")
    ended_well(world)
    run.refresh_from_db()
    assert run.counts == {"already_absent": 1}


def test_what_survives_its_acknowledged_deletion_is_tried_again_and_then_a_persons(world: Acting) -> None:
    row = world.put("a")
    world.run()
    delete = world.store._delete
    world.store._delete = lambda bucket, ref: type(delete(bucket, VersionRef("-", "-"))).acknowledge()
    again(world, 8)
    quarantined(world, "a", "survived")
    assert world.there(row)
    ended_well(world)


def test_the_current_version_waits_for_the_older_one(world: Acting) -> None:
    older = world.put("a", b"1", stored_at=EPOCH - timedelta(days=1))
    current = world.put("a", b"2")
    world.run()
    world.drain()
    assert (world.there(older), world.there(current)) == (False, True)
    again(world)
    assert not world.there(current)
    ended_well(world)


def test_the_current_version_goes_to_quarantine_when_the_older_one_stays(world: Acting) -> None:
    older = world.put("a", b"1", stored_at=EPOCH - timedelta(days=1))
    current = world.put("a", b"2")
    world.run()
    failing(world, FailureClass.PERMISSION, older)
    again(world, 2)
    assert (world.there(older), world.there(current)) == (True, True)
    assert set(CleanupCommand.objects.values_list("state", "failure_class")) == {
        ("dead", "permission"),
        ("dead", "older_version"),
    }
    ended_well(world)


def test_a_command_of_which_one_target_fails_keeps_the_other_as_gone_and_converges(world: Acting) -> None:
    original = world.put("a")
    small = thumbnail(world, original)
    run = world.run()
    assert world.command("a").target_count == 2
    failing(world, FailureClass.TRANSIENT, small)
    world.drain()
    assert (world.there(original), world.there(small)) == (False, True)
    assert world.command("a").targets.get(key="a").gone_at is not None
    again(world)
    assert world.story("a") == ["failed", "deleted"]
    assert world.store.calls[-1][1] == (VersionRef(small.key, small.version_id),), "only what is left is looked at"
    ended_well(world)
    run.refresh_from_db()
    assert run.counts == {"deleted": 1}


def test_targets_in_two_buckets_go_in_one_command(world: Acting) -> None:
    other = Bucket.objects.create(name="thumbs", keys_per_second=1_000_000)
    world.store.create_bucket(ref(other))
    enforced(world.tenant, other, "", by=world.people["manager"], approver=world.people["manager2"])
    original = world.put("a")
    small = thumbnail(world, original, bucket=other)
    world.run()
    failing(world, FailureClass.TRANSIENT, small)  # whichever bucket is asked first
    again(world, 3)
    assert world.command("a").state == CommandState.DELETED
    assert {target.bucket_id for target in world.command("a").targets.all()} == {world.bucket.pk, other.pk}
    assert Receipt.objects.get().target_count == 2
    ended_well(world)


def test_a_null_version_is_always_looked_at_before_it_goes() -> None:
    world = build()
    world.store.set_versioning(world.place, "suspended")
    row = world.put("a", incarnation="1" * 32)
    assert row.version_id == "null"
    world.run()
    world.drain()
    operations = [operation for operation, _refs in world.store.calls]
    assert operations == ["inspect", "delete_versions", "inspect"]
    assert world.story("a") == ["deleted"]
    ended_well(world)


def test_a_null_version_that_was_replaced_meanwhile_stays() -> None:
    world = build()
    world.store.set_versioning(world.place, "suspended")
    world.put("a", incarnation="1" * 32)
    world.run()
    world.store.put(world.place, "a", b"another")
    world.drain()
    quarantined(world, "a", "version_mismatch")
    assert world.store.inspect(world.place, [VersionRef("a", "null")])[VersionRef("a", "null")].etag
    ended_well(world)


def test_a_store_that_always_times_out_and_never_executes_exhausts_the_attempts(world: Acting) -> None:
    world.put("a")
    world.run()
    world.store.inject(Fault("delete_versions", TIMEOUT), times=20)
    again(world, 16)
    entry = quarantined(world, "a", "transient")
    assert entry.attempts == 8
    assert world.story("a")[-3:] == ["present", "ambiguous", "failed"]
    ended_well(world)


def test_a_deletion_that_nobody_could_see_keeps_its_command_out_of_quarantine(world: Acting) -> None:
    original = world.put("a")
    small = thumbnail(world, original)
    world.run()
    failing(world, FailureClass.PERMISSION, small)
    unseen = Failure.of(FailureClass.TRANSIENT, "InternalError")
    world.store.inject(Fault("inspect", unseen))
    world.drain()
    command = world.command("a")
    assert command.state == CommandState.READY, "the original is gone, and nobody has seen that yet"
    assert command.inspect_due is not None
    failing(world, FailureClass.PERMISSION, small)
    again(world, 2)
    quarantined(world, "a", "permission")
    assert world.command("a").targets.get(key="a").gone_at is not None
    ended_well(world)


def test_a_request_that_never_left_us_makes_no_absence_ours(world: Acting) -> None:
    row = world.put("a")
    world.run()
    read = control.read

    def pressed(tenant_id: int) -> tuple[int, control.Stopped]:
        """The stop switch is pressed after the request was committed, and before it is sent."""
        if Request.objects.exists() and not read(tenant_id)[1].whole:
            control.press(scope="tenant", tenant=world.tenant, by=world.people["operator"], reason="Wait")
        return read(tenant_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control, "read", pressed)
        world.drain()
    assert world.story("a") == ["not_sent"]
    name = taken_away(world, row)
    control.lift(switch=StopSwitch.objects.get(), by=world.people["compliance"], reason="Go on")
    again(world)
    quarantined(world, "a", "already_absent")
    ended_well(world, removed=[name])


def test_a_command_that_was_absent_before_is_not_taken_for_destroyed_when_it_is_taken_up_again(world: Acting) -> None:
    row = world.put("a")
    world.run()
    name = taken_away(world, row)
    world.drain()
    world.settled()
    world.run()
    command = world.command("a")
    assert (command.state, command.cycle) == (CommandState.READY, 1)
    world.drain()
    command.refresh_from_db()
    assert (command.state, command.failure_class) == (CommandState.DEAD, "already_absent")
    assert not Receipt.objects.exists()
    assert not Request.objects.exists()
    ended_well(world, removed=[name])


def test_late_evidence_in_doubt_waits_for_the_store_to_settle(world: Acting) -> None:
    world.put("a")
    world.run()
    batch = claim.claim(world.bucket.pk, world.tenant.pk, [0, 1, 2], 60)
    world.store.inject(Fault("delete_versions", TIMEOUT))
    done = execute.execute(batch, world.stores)
    world.leases_expire()
    again(world)
    assert world.story("a") == ["lease_lost", "present"]
    assert settle.settle(batch, done.verdicts).late == 1
    command = world.command("a")
    assert command.inspect_due is not None
    assert command.inspect_due > clock.now() + timedelta(seconds=50)
    assert command.due_at >= command.inspect_due
    again(world, 2)
    assert world.story("a") == ["lease_lost", "late ambiguous", "present", "present", "deleted"]
    ended_well(world)


def test_a_command_of_a_cancelled_run_whose_worker_died_is_looked_at_and_ends(world: Acting) -> None:
    world.put("sent")
    world.put("claimed")
    run = world.run()

    class Died(BaseException):
        pass

    def die(operation: str, *_: object) -> None:
        if operation == "inspect":
            raise Died

    world.store.before_call = die
    with pytest.raises(Died):
        world.drain()
    world.store.before_call = None
    CleanupCommand.objects.filter(targets__key="claimed").update(due_at=EPOCH)
    runs.cancel(run=run, by=world.people["operator"], reason="Wrong scope")
    closing.withdraw()
    world.leases_expire()
    again(world, 2)
    closing.withdraw()
    assert set(CleanupCommand.objects.values_list("state", flat=True)) <= {"deleted", "withdrawn"}
    ended_well(world)


def taken_away(world: Acting, row: ObjectVersion) -> VersionRef:
    """Somebody else removes the version, and no listing of ours is recent enough to have shown it."""
    name = VersionRef(row.key, row.version_id)
    world.store._delete(world.place, name)
    ObjectVersion.objects.filter(pk=row.pk).update(listed_at=None)
    return name
