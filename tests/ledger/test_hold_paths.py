"""A hold blocks every path to destruction; its release destroys nothing, and a later authorised run goes on."""

import json
from pathlib import Path

import pytest

from cleanup_project.base import clock
from ledger import claim, inflight, manifest, publish, quarantine, runs
from ledger.exceptions import NotReplayable
from ledger.models import CleanupCommand, CleanupRun, Decision, InFlight, ManifestItem, Receipt
from retention.models import KeyRule, ObjectVersion
from retention.sources.importing import import_file
from tests.ledger import invariants
from tests.ledger.acting import Acting, build
from tests.ledger.parking import held
from tests.world import hold, release

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> Acting:
    return build()


def test_what_was_held_is_released_and_then_destroyed_by_a_later_run_alone(world: Acting) -> None:
    command, placed = held(world)
    row = world.versions["clips/held"][0]
    release(placed)
    command.refresh_from_db()
    assert (command.state, command.cycle) == ("held", 0), "a release changes no command"
    world.due_now()
    assert world.drain().gone == 0
    assert world.there(row)

    world.settled()
    later = world.run()
    command.refresh_from_db()
    assert (command.state, command.cycle, command.run_id, command.hold) == ("ready", 1, later.pk, None)
    assert Decision.objects.get(command=command).kind == "adopted"
    assert world.drain().gone == 1
    assert not world.there(row)
    assert Receipt.objects.count() == 1
    world.settled()
    invariants.check(world.stores)


def test_a_second_hold_keeps_what_the_first_gave_back(world: Acting) -> None:
    command, placed = held(world)
    hold(world.tenant, world.bucket, "clips/", by=world.people["compliance"], matter="Roe v. Acme")
    release(placed)
    world.settled()
    world.run()
    command.refresh_from_db()
    assert command.state == "held"
    with pytest.raises(NotReplayable, match="A legal hold covers it"):
        quarantine.replay(command=command, by=world.people["operator"], reason="Go")
    assert world.there(world.versions["clips/held"][0])


def test_a_run_makes_no_command_of_what_is_held(world: Acting) -> None:
    world.put("clips/1")
    world.put("case/1")
    hold(world.tenant, world.bucket, "case/", by=world.people["compliance"])
    world.run()
    assert set(CleanupCommand.objects.values_list("targets__key", flat=True)) == {"clips/1"}


def test_a_claim_checks_holds_that_were_placed_after_publication(world: Acting) -> None:
    row = world.put("case/1")
    world.run()
    hold(world.tenant, world.bucket, "case/", by=world.people["compliance"])
    assert world.drain().gone == 0
    assert (world.command("case/1").state, world.there(row)) == ("held", True)


def test_a_leased_command_is_looked_at_again_before_it_is_sent(world: Acting) -> None:
    row = world.put("case/1")
    world.run()
    claim.claim(world.bucket.pk, world.tenant.pk, [0, 1, 2], 60, 1)
    placed = hold(world.tenant, world.bucket, "case/", by=world.people["compliance"])
    inflight.placed(placed.pk)
    assert InFlight.objects.get().ended_at is None
    world.leases_expire()
    world.drain()
    inflight.ended()
    assert (InFlight.objects.get().ended_as, world.there(row)) == ("held", True)


def test_a_hold_covers_what_is_catalogued_later(world: Acting, tmp_path: Path) -> None:
    KeyRule.objects.create(bucket=world.bucket, position=1, pattern="{_*}", tenant=world.tenant)
    placed = hold(world.tenant, world.bucket, "case/", by=world.people["compliance"])
    name = world.store.put(world.place, "case/later", b"x")
    path = tmp_path / "rows.jsonl"
    line = {
        "key": "case/later", "version_id": name.version_id, "etag": "9dd4e461268c8034f5c8564e155c67a6", "size": 1,
        "last_modified": "2020-05-17T10:30:00Z",
    }  # fmt: skip
    path.write_text(json.dumps(line) + "\n")
    assert import_file(world.bucket, path, format="jsonl").recorded == 1
    world.run()
    assert not ManifestItem.objects.exists()
    assert ObjectVersion.objects.get().parked_by == placed
    release(placed)
    world.settled()
    ObjectVersion.objects.update(listed_at=clock.now())
    world.run()
    assert world.drain().gone == 1


def test_what_a_hold_covered_between_freeze_and_publication_passes_a_new_run_after_its_release() -> None:
    world = build(authorisation="approval")
    row, other = world.put("case/1"), world.put("clips/1")
    run, _new = runs.open_run(policy=world.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    run = manifest.freeze(run)
    release(hold(world.tenant, world.bucket, "case/", by=world.people["compliance"]))
    approve(world, run)
    publish.publish(run.pk)
    assert set(CleanupCommand.objects.values_list("targets__key", flat=True)) == {"clips/1"}
    world.drain()
    world.settled()
    run.refresh_from_db()
    assert (run.state, run.counts) == ("closed", {"deleted": 1, "withdrawn": 1})
    assert run.skipped.get().reason == "A legal hold has covered it since, and was released: a later run decides."
    assert (world.there(row), world.there(other)) == (True, False)

    later = world.run()
    approve(world, later)
    publish.publish(later.pk)
    world.drain()
    assert not world.there(row)


def test_a_command_is_not_adopted_for_a_run_during_which_a_hold_covered_it_and_was_released(world: Acting) -> None:
    command, placed = held(world)
    release(placed)
    world.settled()
    run, _new = runs.open_run(policy=world.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    manifest.freeze(run)
    release(hold(world.tenant, world.bucket, "clips/", by=world.people["compliance"]))
    publish.publish(run.pk)
    command.refresh_from_db()
    assert (command.state, command.cycle) == ("held", 0)


def approve(world: Acting, run: CleanupRun) -> None:
    runs.approve(
        run=run, by=world.people["compliance"], root=run.remaining_root, confirmation=run.key, reason="Looked at"
    )
