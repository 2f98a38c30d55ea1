"""From published commands to receipts and notices, against a store in memory."""

import json
from hashlib import sha256

import pytest

from ledger.models import Attempt, CleanupCommand, Receipt, Request
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
    assert Receipt.objects.count() == OutboxEvent.objects.count() == Request.objects.count() == 5
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
