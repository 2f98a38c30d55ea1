"""Interleavings that once went wrong, each as small as it could be made."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ledger import closing, drain, reconcile, runs
from ledger.models import CleanupCommand, SkippedItem
from ledger.states import CommandState
from retention.models import ObjectVersion
from retention.storage import Failure, FailureClass, VersionRef
from retention.storage.memory import Fault
from tests import world as rows
from tests.ledger.acting import Acting, build
from tests.ledger.chaos import Died, Watched

pytestmark = pytest.mark.django_db


def dies_at(operation: str) -> Callable[..., None]:
    def hook(called: str, *_: Any) -> None:
        if called == operation:
            raise Died

    return hook


def step(world: Acting) -> None:
    drain.step(world.bucket.pk, drain.Drained(), world.stores, set())


def leases_expire() -> None:
    for command in CleanupCommand.objects.filter(state="ready"):
        long_ago = command.published_at - timedelta(hours=1)
        fields: dict[str, Any] = {"due_at": long_ago}
        if command.lease_until:
            fields["lease_until"] = long_ago
        CleanupCommand.objects.filter(pk=command.pk).update(**fields)


@pytest.mark.parametrize("executed", [False, True])
def test_a_worker_dies_and_its_run_is_cancelled_then_its_commands_end_all_the_same(executed: bool) -> None:
    world = build()
    row = world.put("a.mp4")
    run = world.run()
    world.store.before_call = dies_at("delete_versions")
    with pytest.raises(Died):
        step(world)
    world.store.before_call = None
    runs.cancel(run=run, by=world.people["operator"], reason="Not now")
    if executed:
        world.store.delete_versions(world.place, [VersionRef(row.key, row.version_id)], deadline_seconds=1)
    for _ in range(2):
        leases_expire()
        step(world)
        closing.withdraw()
    command = world.command("a.mp4")
    assert command.state == (CommandState.DELETED if executed else CommandState.WITHDRAWN)
    assert command.inspect_due is None
    assert world.there(row) != executed


def test_of_two_targets_one_is_denied_and_the_other_cannot_be_seen_so_the_command_is_looked_at_again() -> None:
    world = build()
    world.put("a.mp4")
    thumb = world.put("a.jpg", original_key="a.mp4")
    world.run()
    names = {key: VersionRef(key, world.versions[key][0].version_id) for key in ("a.mp4", "a.jpg")}
    denied = Failure.of(FailureClass.PERMISSION, "AccessDenied")
    world.store.inject(Fault("delete_versions", denied, frozenset({names["a.mp4"]})))
    world.store.inject(Fault("inspect", Failure.of(FailureClass.TRANSIENT, "InternalError")))
    step(world)
    command = world.command("a.mp4")
    assert not world.there(thumb)
    assert (command.state, command.inspect_due is not None) == (CommandState.READY, True)
    leases_expire()
    step(world)
    assert command.targets.get(key="a.jpg").gone_at is not None


def test_a_worker_that_lost_its_lease_between_two_requests_tells_of_the_first() -> None:
    world = build()
    world.put("a.mp4")
    world.put("a.jpg", original_key="a.mp4")
    world.run()
    asked: list[str] = []

    def lease_is_lost(*_: Any) -> None:
        """Once the first request is allowed, somebody takes over, finds both present, and a hold parks the command."""
        if asked:
            return
        asked.append("once")
        leases_expire()
        step(Acting(store, world.tenant, world.bucket, world.revision, world.people))
        leases_expire()
        rows.hold(world.tenant, world.bucket, "a.mp4", by=world.people["compliance"])
        step(Acting(store, world.tenant, world.bucket, world.revision, world.people))
        assert world.command("a.mp4").state == CommandState.HELD

    store = Watched(world.store, before_send=lease_is_lost, removed=lambda *_: None, split=True)
    drain.step(world.bucket.pk, drain.Drained(), lambda _: store, set())
    command = world.command("a.mp4")
    assert sum(not world.there(row[0]) for row in world.versions.values()) == 1
    assert (command.state, command.inspect_due is not None) == (CommandState.HELD, True)
    reconcile.look_again(world.stores)
    assert command.targets.filter(gone_at__isnull=False).count() == 1


def test_a_derivative_that_turns_out_to_be_another_versions_is_not_destroyed_by_an_adopted_command() -> None:
    world = build()
    minute = timedelta(minutes=1)
    first = world.put("a.mp4", stored_at=rows.EPOCH)
    thumb = world.put("a.jpg", original_key="a.mp4", stored_at=rows.EPOCH + 2 * minute)
    run = world.run()
    assert world.command("a.jpg").targets.count() == 2
    runs.cancel(run=run, by=world.people["operator"], reason="Not now")
    closing.withdraw()
    second = world.put("a.mp4", body=b"yy", stored_at=rows.EPOCH + minute)
    world.run()
    made = CleanupCommand.objects.get(state=CommandState.READY)
    assert {target.object_version_id for target in made.targets.all()} == {second.pk, thumb.pk}
    assert SkippedItem.objects.get().reason == "Its command names other targets than this run found."
    assert world.there(first)


def test_what_was_absent_before_any_request_is_not_called_deleted_when_a_later_run_adopts_it() -> None:
    world = build()
    row = world.put("a.mp4")
    ObjectVersion.objects.update(listed_at=rows.EPOCH)
    world.run()
    world.store.delete_versions(world.place, [VersionRef(row.key, row.version_id)], deadline_seconds=1)
    step(world)
    assert world.command("a.mp4").failure_class == "already_absent"
    world.settled()
    world.run()
    step(world)
    command = world.command("a.mp4")
    assert (command.cycle, command.state, command.outcome) == (1, CommandState.DEAD, "")


def test_a_command_waits_only_for_older_versions_and_not_for_newer_ones_that_wait_for_it() -> None:
    world = build()
    minute = timedelta(minutes=1)
    world.put("a.jpg", original_key="a.mp4", stored_at=rows.EPOCH)  # of no version that is known
    world.put("a.mp4", stored_at=rows.EPOCH + minute)
    world.put("a.jpg", original_key="a.mp4", stored_at=rows.EPOCH + 2 * minute)
    world.put("a.mp4", stored_at=rows.EPOCH + 3 * minute)
    world.run()
    for _ in range(3):
        leases_expire()
        step(world)
    assert list(CleanupCommand.objects.values_list("state", "failure_class")) == [("dead", "older_version")] * 2
