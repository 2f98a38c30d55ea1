"""From published commands to receipts and notices, against a store in memory."""

import json
from hashlib import sha256
from typing import Any

import pytest
from django.db import connection

from cleanup_project.base.models import Alarm
from ledger import closing, manifest, publish, runs
from ledger import settle as settling
from ledger.models import Attempt, CleanupCommand, CleanupRun, Receipt, Request, SkippedItem
from ledger.states import CommandState, RunState
from tests.ledger.acting import build
from webhooks.models import OutboxEvent

pytestmark = pytest.mark.django_db


def test_a_run_destroys_what_it_froze_and_closes() -> None:
    world = build()
    rows = [world.put(f"originals/{n}.mp4") for n in range(5)]
    run = world.run()
    assert run.state == RunState.DRAINING
    drained = world.drain()
    assert (drained.commands, drained.gone) == (5, 5)
    assert not any(world.there(row) for row in rows)
    commands = list(CleanupCommand.objects.all())
    assert {command.state for command in commands} == {CommandState.DELETED}
    assert (
        Receipt.objects.count()
        == OutboxEvent.objects.filter(type="media.deleted").count()
        == Request.objects.count()
        == 5
    )
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"deleted"}
    world.settled()
    run.refresh_from_db()
    assert (run.state, run.counts) == (RunState.CLOSED, {"deleted": 5})
    assert {each.state for each in CleanupCommand.objects.all()} == {CommandState.NOTIFIED}
    for row in rows:
        row.refresh_from_db()
        assert row.gone_reason == "destroyed"


def test_a_receipt_is_canonical_and_names_no_key() -> None:
    import rfc8785

    world = build()
    row = world.put("originals/Müller, confidential.mp4", asset="a1", series="a1")
    world.run()
    world.drain()
    receipt = Receipt.objects.get()
    body = bytes(receipt.body)
    told = json.loads(body)
    assert rfc8785.dumps(told) == body
    assert sha256(body).digest() == bytes(receipt.digest)
    assert b"confidential" not in body
    assert told["targets"][0]["etag"] == row.etag
    assert told["targets"][0]["before"]["method"] == "listing"
    assert told["targets"][0]["after"]["at"] > told["targets"][0]["before"]["at"]
    assert told["why"]["trigger"] == "stored_at"
    assert receipt.locators.get().key == row.key


def test_a_run_whose_counts_do_not_add_up_stays_open_and_alarms_until_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    world = build()
    world.fill(["a", "b"])
    run = world.run()
    world.drain()
    counted = closing.counts_of
    SkippedItem.objects.create(run=run, item_id=0, command_key="nobody's", reason="Too many.")
    for _ in range(2):
        assert closing.close_drained() == 0
        run.refresh_from_db()
        assert (run.state, run.counts, run.ended_at) == (RunState.DRAINING, None, None)
    alarm = Alarm.objects.get()
    assert (alarm.kind, alarm.subject_label, alarm.cleared_at) == ("run.counts", run.key, None)
    assert "The manifest has 2 items, and 3 have an outcome: 2 deleted, 1 withdrawn." in alarm.message
    monkeypatch.setattr(closing, "counts_of", lambda of: {"deleted": counted(of)["deleted"]})
    assert closing.close_drained() == 1
    run.refresh_from_db()
    assert (run.state, Alarm.objects.open().exists()) == (RunState.CLOSED, False)


def test_receipts_are_made_beside_the_database_without_a_connection_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a thread, which would open one at its first question, outside of the settlement's transaction."""
    make, opened = settling.make, list[bool]()

    def watched(*arguments: Any) -> Any:
        made = make(*arguments)
        opened.append(connection.connection is not None)
        return made

    monkeypatch.setattr(settling, "make", watched)
    world = build(authorisation="approval")  # so that receipts name who approved
    for n in range(3):
        world.put(f"originals/{n}.mp4")
    run, _new = runs.open_run(policy=world.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    manifest.freeze(run)
    run.refresh_from_db()
    runs.approve(run=run, by=world.people["compliance"], root=run.remaining_root, confirmation="3", reason="Read.")
    publish.publish(run.pk)
    assert world.drain().gone == 3
    assert opened == [False]


def test_what_fails_while_receipts_are_made_leaves_nothing_of_the_settlement(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_arguments: Any) -> Any:
        raise RuntimeError("It broke.")

    world = build()
    world.put("originals/a.mp4")
    world.run()
    monkeypatch.setattr(settling, "make", failing)
    with pytest.raises(RuntimeError):
        world.drain()
    assert list(CleanupCommand.objects.values_list("state", flat=True)) == [CommandState.READY]
    assert not Receipt.objects.exists()
    assert not Attempt.objects.exists()
