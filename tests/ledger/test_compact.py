"""Compaction: what goes, what stays, what is never touched, and what keeps a second command away afterwards."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db.models import F

from ledger import compact, manifest, publish, runs
from ledger.exceptions import LedgerError
from ledger.models import (
    Attempt,
    CleanupCommand,
    CleanupRun,
    CommandSummary,
    CommandTarget,
    Receipt,
    ReceiptLocator,
    Request,
    SkippedItem,
)
from retention.models import PolicyRevision
from tests.ledger.acting import Acting, build
from tests.ledger.parking import cancelled, dead, deleted, held, withdrawn
from tests.world import published

pytestmark = pytest.mark.django_db

YEAR = timedelta(days=365)


def notified(world: Acting, key: str = "clips/deleted") -> CleanupCommand:
    command = deleted(world, key)
    world.settled()
    command.refresh_from_db()
    assert command.state == "notified"
    return command


def long_ago(days: int = 400) -> None:
    CleanupCommand.objects.update(changed_at=F("changed_at") - timedelta(days=days))


def details(command: CleanupCommand) -> list[int]:
    return [model.objects.filter(command=command).count() for model in (CommandTarget, Request, Attempt)]


def test_a_command_that_was_notified_long_ago_becomes_a_summary() -> None:
    world = build()
    command = notified(world)
    target = command.targets.get()
    assert compact.compact(older_than=YEAR) == 0
    long_ago()
    assert compact.compact(older_than=YEAR) == 1
    assert details(command) == [0, 0, 0]
    command.refresh_from_db()
    summary = CommandSummary.objects.get(command=command).summary
    assert command.compacted_at is not None
    assert summary["claims"] == 1
    assert summary["targets"][0]["object_version"] == target.object_version_id
    assert "key" not in summary["targets"][0]
    assert summary["requests"]["count"] == 1
    assert summary["attempts"]["by_outcome"] == {"deleted": 1}
    assert (summary["attempts"]["count"], summary["attempts"]["charged"], summary["attempts"]["late"]) == (1, 0, 0)
    assert summary["attempts"]["first"] == summary["attempts"]["last"]
    assert Receipt.objects.count() == ReceiptLocator.objects.count() == 1
    assert compact.compact(older_than=YEAR) == 0


def test_what_may_still_move_keeps_its_details() -> None:
    world = build()
    parked = [withdrawn(world), dead(world), held(world)[0], cancelled(world)]
    unsettled = deleted(world)
    long_ago()
    assert compact.compact(older_than=YEAR) == 0
    for command in (*parked, unsettled):
        assert all(details(command)[:1]), command


def test_a_chunk_at_a_time_the_oldest_first() -> None:
    world = build()
    first, second = notified(world, "clips/one"), notified(world, "clips/two")
    CleanupCommand.objects.filter(pk=second.pk).update(changed_at=F("changed_at") - timedelta(days=1))
    long_ago()
    assert compact.compact(older_than=YEAR, limit=1) == 1
    assert (details(second), details(first)) == ([0, 0, 0], [1, 1, 1])
    assert compact.compact(older_than=YEAR, limit=1) == 1
    assert compact.compact(older_than=YEAR, limit=1) == 0


def test_less_than_a_day_is_refused() -> None:
    with pytest.raises(LedgerError, match="at least a day"):
        compact.compact(older_than=timedelta(hours=23))
    with pytest.raises(LedgerError, match="at least a day"):
        compact.forget_locators(older_than=timedelta(0))


def test_after_compaction_no_second_command_is_made_for_the_same_object_version() -> None:
    """A manifest was frozen and not published; meanwhile another policy destroyed its object, and that was compacted."""
    world = build()
    people = world.people
    world.put("clips/one", asset="one")
    late, _new = runs.open_run(policy=world.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    manifest.freeze(late)
    assert late.items.count() == 1
    rival = published(
        world.tenant, world.bucket, author=people["manager"], publisher=people["manager2"], code="rival",
        authorisation=PolicyRevision.Authorisation.STANDING, period_number=31,
    )  # fmt: skip
    run, _new = runs.open_run(policy=rival.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    manifest.freeze(run)
    publish.publish(run.pk)
    world.drain()
    world.settled()
    long_ago()
    assert compact.compact(older_than=YEAR) == 1
    publish.publish(late.pk)
    assert CleanupCommand.objects.get().run == run
    assert SkippedItem.objects.get().reason == "Another command has destroyed one of its objects."


def test_locators_are_forgotten_by_the_age_of_their_receipts(monkeypatch: pytest.MonkeyPatch) -> None:
    world = build()
    notified(world)
    notified(world, "clips/two")
    assert compact.forget_locators(older_than=YEAR) == 0
    assert ReceiptLocator.objects.count() == 2
    monkeypatch.setattr(compact, "AT_LEAST", timedelta(days=-1))
    monkeypatch.setattr(compact, "CHUNK", 1)
    assert compact.forget_locators(older_than=timedelta(seconds=-60)) == 2
    assert not ReceiptLocator.objects.exists()
    assert Receipt.objects.count() == 2


def run_command(capsys: Any, *arguments: str) -> Any:
    call_command("compact", *arguments)
    return json.loads(capsys.readouterr().out) if "--json" in arguments else capsys.readouterr().out


def test_the_command_says_what_it_did(capsys: Any) -> None:
    world = build()
    notified(world)
    long_ago(days=40)
    assert run_command(capsys, "--json") == {"compacted": 0, "locators_forgotten": 0}
    told = run_command(capsys, "--older-than", "30", "--forget-locators", "30")
    assert "1 commands compacted; locators of 0 receipts forgotten." in told
    with pytest.raises(CommandError, match="at least a day"):
        run_command(capsys, "--older-than", "0")
