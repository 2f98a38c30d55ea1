"""Replay and close: what they check again, what they write, and who is told what when they are refused."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

import pytest
from django.db import connection, connections, transaction
from django.db.models import Sum
from django.db.models.functions import Now
from django_q.models import OrmQ

from cleanup_project.base import clock
from cleanup_project.base.models import AuditEvent
from ledger import manifest, publish, quarantine, runs
from ledger.exceptions import AlreadyDecided, LedgerError, NotPermitted, NotReplayable
from ledger.models import (
    CleanupCommand,
    CleanupRun,
    CommandTarget,
    DeadLetter,
    Decision,
    Receipt,
    RunTally,
    SkippedItem,
)
from ledger.states import CommandState
from retention import control, holds, policies
from retention.models import Enforcement, ObjectVersion
from tests.ledger.acting import Acting, build
from tests.ledger.parking import cancelled, dead, deleted, held, locked, released, withdrawn
from tests.world import hold, published

pytestmark = pytest.mark.django_db

LATER = datetime(2100, 1, 1, tzinfo=UTC)


def replay(world: Acting, command: CleanupCommand, **changed: object) -> CleanupCommand:
    fields = {"by": world.people["operator"], "reason": "Repaired.", **changed}
    return quarantine.replay(command=command, **fields)  # type: ignore[arg-type]


def test_a_dead_command_is_replayed_and_succeeds_under_the_same_key() -> None:
    world = build()
    command = dead(world)
    again = replay(world, command, repair="credentials")
    assert (again.state, again.cycle, again.attempts, again.failure_class) == ("ready", 1, 0, "")
    assert again.due_at <= clock.now()
    assert again.targets.get().active
    entry = DeadLetter.objects.get()
    assert (entry.resolution, entry.resolved_by, entry.reason) == ("replayed", world.people["operator"], "Repaired.")
    decision = Decision.objects.get()
    assert (decision.kind, decision.cycle, decision.repair) == ("replay", 1, "credentials")
    event = AuditEvent.objects.get(action="command.replayed")
    assert (event.actor, event.reason) == (world.people["operator"], "Repaired.")
    assert world.drain().gone == 1
    assert world.command("clips/dead").state == CommandState.DELETED
    assert Receipt.objects.get().command_key == command.key


def test_a_replay_takes_its_command_out_of_the_runs_tallies() -> None:
    world = build()
    command = dead(world)
    replay(world, command)
    world.drain()
    sums = dict(RunTally.objects.values_list("outcome").annotate(Sum("commands")).order_by())
    assert sums == {"dead": 0, "deleted": 1}


def test_a_replay_rings_for_the_drain() -> None:
    world = build()
    command = dead(world)
    OrmQ.objects.all().delete()
    replay(world, command)
    assert "ledger.tasks.drain" in {message.func() for message in OrmQ.objects.all()}


def test_what_a_hold_of_ours_held_is_replayed_once_that_is_released() -> None:
    world = build()
    command, placed = held(world)
    with pytest.raises(NotReplayable, match=f"A legal hold covers it \\(hold {placed.pk}\\)"):
        replay(world, command)
    released(placed)
    assert replay(world, command).held_by == ""
    assert world.drain().gone == 1


def test_what_the_store_held_waits_for_its_date() -> None:
    world = build()
    command = locked(world, LATER)
    with pytest.raises(NotReplayable, match="The store retains it until 2100-01-01"):
        replay(world, command)
    CleanupCommand.objects.update(held_until=Now() - timedelta(seconds=1))
    assert replay(world, command).state == CommandState.READY


def test_where_the_stores_date_is_unknown_a_replay_finds_out() -> None:
    world = build()
    command = locked(world, None)
    assert command.held_until is None
    replay(world, command)
    world.drain()
    command.refresh_from_db()
    assert (command.state, command.cycle) == ("held", 1)


def test_a_withdrawn_command_is_replayed() -> None:
    world = build()
    command = withdrawn(world)
    assert replay(world, command).reason == ""
    assert world.drain().gone == 1


def test_a_command_of_a_cancelled_run_waits_for_a_new_run() -> None:
    world = build()
    command = cancelled(world)
    with pytest.raises(NotReplayable, match="was cancelled: open a new run"):
        replay(world, command)


def test_nothing_is_replayed_while_the_stop_switch_is_on() -> None:
    world = build()
    command = dead(world)
    control.press(scope="tenant", tenant=world.tenant, by=world.people["operator"], reason="Look first.")
    with pytest.raises(NotReplayable, match=r"Stopped by operator since .*: Look first. Have it lifted first."):
        replay(world, command)


def test_nothing_is_replayed_where_enforcement_is_off() -> None:
    world = build()
    command = dead(world)
    Enforcement.objects.update(switched_off_at=Now())
    with pytest.raises(NotReplayable, match="Enforcement is off"):
        replay(world, command)


def test_nothing_is_replayed_while_its_policy_is_suspended() -> None:
    world = build()
    command = dead(world)
    policies.suspend(policy=world.revision.policy, by=world.people["manager"], reason="Under review.")
    with pytest.raises(NotReplayable, match="suspended"):
        replay(world, command)


def test_what_another_revision_governs_now_is_that_ones_to_decide() -> None:
    world = build()
    command = dead(world)
    people = world.people
    newer = published(
        world.tenant, world.bucket, author=people["manager"], publisher=people["manager2"], code="originals"
    )
    with pytest.raises(NotReplayable, match=f"{newer} governs it now"):
        replay(world, command)


def test_a_longer_policy_that_covers_it_now_keeps_it() -> None:
    world = build()
    command = dead(world)
    people = world.people
    published(
        world.tenant, world.bucket, author=people["manager"], publisher=people["manager2"], period_number=4000,
        period_unit="years",
    )  # fmt: skip
    with pytest.raises(NotReplayable, match="not eligible now"):
        replay(world, command)


def test_a_hold_over_a_derivative_keeps_the_whole() -> None:
    world = build()
    world.put("clips/one", asset="one")
    world.put(
        "thumbs/one",
        asset="one",
        original_key="clips/one",
        original_version_id=world.versions["clips/one"][0].version_id,
    )
    world.run()
    hold(world.tenant, world.bucket, "thumbs/", by=world.people["compliance"])
    world.drain()
    with pytest.raises(NotReplayable, match="A legal hold covers it"):
        replay(world, world.command("clips/one"))


def test_a_derivative_that_went_over_to_another_version_keeps_the_whole() -> None:
    world = build()
    original = world.put("clips/one", asset="one")
    thumb = world.put("thumbs/one", asset="one", original_key="clips/one", original_version_id=original.version_id)
    world.run()
    hold_ = hold(world.tenant, world.bucket, "thumbs/", by=world.people["compliance"])
    world.drain()
    released(hold_)
    ObjectVersion.objects.filter(pk=thumb.pk).update(original_version_id="another")
    with pytest.raises(NotReplayable, match="does not go with this original any more"):
        replay(world, world.command("clips/one"))


def test_while_an_earlier_request_is_in_doubt_nothing_is_replayed() -> None:
    world = build()
    command = dead(world)
    CleanupCommand.objects.update(inspect_due=Now())
    with pytest.raises(NotReplayable, match="not known yet"):
        replay(world, command)


def test_what_another_command_has_is_not_replayed() -> None:
    world = build()
    other = deleted(world, "clips/other")
    command = dead(world)
    target = command.targets.get()
    fields = {
        name: getattr(target, name) for name in ("object_version_id", "bucket_id", "key", "version_id", "size", "role")
    }
    CommandTarget.objects.create(command=other, ordinal=2, stored_at=target.stored_at, **fields)
    with pytest.raises(NotReplayable, match="Another command has one of its objects"):
        replay(world, command)


def test_what_vanished_is_replayed_since_it_may_have_been_us() -> None:
    world = build()
    command = dead(world)
    ObjectVersion.objects.update(gone_at=Now(), gone_reason="vanished")
    assert replay(world, command).state == CommandState.READY


def test_what_another_command_destroyed_is_not_replayed() -> None:
    world = build()
    command = dead(world)
    ObjectVersion.objects.update(gone_at=Now(), gone_reason="destroyed")
    with pytest.raises(NotReplayable, match="no longer in the bucket"):
        replay(world, command)


def test_a_command_that_is_not_parked_has_nothing_to_replay() -> None:
    world = build()
    command = deleted(world)
    with pytest.raises(AlreadyDecided, match="is deleted, so there is nothing to replay"):
        replay(world, command)
    again = replay(world, dead(world))
    with pytest.raises(AlreadyDecided, match=r"is ready.*Replay by operator"):
        replay(world, again)


def test_a_replay_needs_the_right_and_a_reason() -> None:
    world = build()
    command = dead(world)
    with pytest.raises(NotPermitted, match="right operate"):
        replay(world, command, by=world.people["manager"])
    with pytest.raises(LedgerError, match="State a reason"):
        replay(world, command, reason="  ")
    assert not Decision.objects.exists()


def test_why_not_says_what_replay_would() -> None:
    world = build()
    command, placed = held(world)
    assert "A legal hold covers it" in quarantine.why_not(command)
    released(placed)
    assert quarantine.why_not(command) == ""


def test_an_entry_is_closed_without_retry_and_the_command_stays_dead() -> None:
    world = build()
    command = dead(world)
    entry = quarantine.close(command=command, by=world.people["compliance"], reason="Kept on purpose.")
    command.refresh_from_db()
    assert command.state == CommandState.DEAD
    assert (entry.resolution, entry.resolved_by) == ("closed", world.people["compliance"])
    assert AuditEvent.objects.get(action="command.closed").reason == "Kept on purpose."
    with pytest.raises(AlreadyDecided, match="has no open quarantine entry: closed without retry"):
        quarantine.close(command=command, by=world.people["compliance"], reason="Again.")


def test_a_closed_entry_may_still_be_replayed() -> None:
    world = build()
    command = dead(world)
    quarantine.close(command=command, by=world.people["compliance"], reason="Kept.")
    replay(world, command)
    assert DeadLetter.objects.get().resolution == "closed"
    assert world.drain().gone == 1


def test_closing_needs_the_right_and_a_reason() -> None:
    world = build()
    command = dead(world)
    with pytest.raises(NotPermitted, match="right review_quarantine"):
        quarantine.close(command=command, by=world.people["operator"], reason="Kept.")
    with pytest.raises(LedgerError, match="State a reason"):
        quarantine.close(command=command, by=world.people["compliance"], reason="")


def test_what_was_destroyed_since_its_manifest_was_frozen_becomes_no_command() -> None:
    world = build()
    row = world.put("clips/one", asset="one")
    run, _new = runs.open_run(policy=world.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    manifest.freeze(run)
    ObjectVersion.objects.filter(pk=row.pk).update(gone_at=Now(), gone_reason="destroyed")
    publish.publish(run.pk)
    assert not CleanupCommand.objects.exists()
    assert SkippedItem.objects.get().reason == "Another command has destroyed one of its objects."


@pytest.mark.django_db(transaction=True)
def test_of_two_people_who_replay_at_once_one_wins_and_the_other_is_told() -> None:
    world = build()
    command = dead(world)
    start = Barrier(2)

    def decide(name: str) -> str:
        try:
            start.wait()
            quarantine.replay(command=command, by=world.people[name], reason=f"Of {name}.")
        except AlreadyDecided as refusal:
            return str(refusal)
        finally:
            connections.close_all()
        return ""

    with ThreadPoolExecutor(2) as pool:
        told = sorted(pool.map(decide, ("operator", "compliance")))
    assert told[0] == ""
    assert "so there is nothing to replay: Replay by" in told[1]
    assert Decision.objects.count() == 1
    command.refresh_from_db()
    assert (command.state, command.cycle) == ("ready", 1)


@pytest.mark.django_db(transaction=True)
def test_a_hold_that_commits_while_a_replay_waits_for_its_lock_is_seen() -> None:
    world = build()
    command = dead(world)

    def later() -> str:
        try:
            quarantine.replay(command=command, by=world.people["operator"], reason="Repaired.")
        except NotReplayable as refusal:
            return str(refusal)
        finally:
            connections.close_all()
        return ""

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [holds.LOCK_CLASS, world.tenant.pk])
            waiting = pool.submit(later)
            while not waits_for_the_lock():
                assert not waiting.done()
            hold(world.tenant, world.bucket, "clips/", by=world.people["compliance"])
        assert "A legal hold covers it" in waiting.result()
    command.refresh_from_db()
    assert command.state == CommandState.DEAD


def waits_for_the_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)")
        return bool(cursor.fetchone()[0])
