"""From published commands to receipts and notices, against a store in memory."""

import json
from hashlib import sha256

import pytest

from cleanup_project.base.models import Alarm
from ledger import closing
from ledger.models import Attempt, CleanupCommand, Receipt, Request, SkippedItem
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
