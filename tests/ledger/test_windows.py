"""Execution windows while workers run: outside of them nothing is sent, and what is in doubt is looked at all the same."""

import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client

from cleanup_project.base import clock
from ledger import claim, execute, runs
from ledger import drain as draining
from ledger.models import CleanupRun, Request
from ledger.next_action import Turn, of_command
from retention.windows import Window
from tests.ledger import invariants
from tests.ledger.acting import Acting, build
from tests.web import quick_pages, url  # noqa: F401

pytestmark = pytest.mark.django_db


def hours(start: float, end: float) -> dict[str, Any]:
    """A window of every day, in hours from now."""
    now = clock.now()
    times = [(now + timedelta(hours=each)).time() for each in (start, end)]
    return {"window_start": times[0], "window_end": times[1], "window_zone": "UTC"}


def sent(world: Acting) -> list[str]:
    return [name.key for operation, names in world.store.calls if operation == "delete_versions" for name in names]


def shut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Window, "closes", lambda window, at: None)


def test_commands_wait_outside_of_their_window(client: Client) -> None:
    world = build(**hours(2, 3))
    world.fill(["a", "b"])
    run = world.run()
    assert world.drain().claimed == 0
    assert sent(world) == []
    following = of_command(world.command("a"))
    assert (following.turn, "execution window" in following.what) == (Turn.AUTOMATIC, True)
    assert following.at is not None
    opens = following.at - clock.now()
    assert timedelta(hours=1, minutes=50) < opens <= timedelta(hours=2)
    assert runs.window_opens(run) == following.at
    client.force_login(world.people["compliance"])
    for address in (url(CleanupRun, "changelist"), url(CleanupRun, "change", run.pk)):
        assert "waits for its window" in client.get(address).content.decode()


def test_commands_are_executed_within_their_window(client: Client) -> None:
    world = build(**hours(-1, 1))
    world.fill(["a", "b"])
    run = world.run()
    assert runs.window_opens(run) is None
    assert "It is due" in of_command(world.command("a")).what
    client.force_login(world.people["compliance"])
    assert "waits for its window" not in client.get(url(CleanupRun, "change", run.pk)).content.decode()
    assert world.drain().gone == 2
    world.settled()
    invariants.check(world.stores)


def test_what_is_in_doubt_is_looked_at_outside_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    world = build(**hours(-1, 1))
    world.put("a")
    world.run()
    (claimed,) = claim.claim(world.bucket.pk, world.tenant.pk, [0, 1, 2], 60).commands
    Request.objects.create(command_id=claimed.id, token=claimed.token, sent_before=clock.now(), worker="lost")
    world.leases_expire()
    shut(monkeypatch)
    world.drain()
    assert (world.story("a"), sent(world)) == (["lease_lost", "present"], [])


def test_a_window_that_closes_between_claim_and_recheck_lets_nothing_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    world = build(**hours(-1, 1))
    world.put("a")
    world.run()
    batch = claim.claim(world.bucket.pk, world.tenant.pk, [0, 1, 2], 60)
    shut(monkeypatch)
    batch.epoch -= 1
    draining.settle(batch, execute.execute(batch, world.stores).verdicts)
    assert (world.story("a"), sent(world)) == (["not_sent"], [])


def test_a_batch_sends_nothing_after_its_window_has_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = build(**hours(-1, 10 / 3600))
    world.put("a")
    world.run()
    begun = time.monotonic()
    batch = claim.claim(world.bucket.pk, world.tenant.pk, [0, 1, 2], 60)
    assert len(batch.commands) == 1
    assert batch.send_until < begun + 11, "not a minute after the claim, as otherwise"
    monkeypatch.setattr(execute, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 12, sleep=time.sleep))
    draining.settle(batch, execute.execute(batch, world.stores).verdicts)
    assert (world.story("a"), sent(world)) == (["not_sent"], [])
    world.settled()
    invariants.check(world.stores)


def test_a_window_that_stays_open_bounds_no_batch() -> None:
    world = build(**hours(-1, 1))
    world.put("a")
    world.run()
    begun = time.monotonic()
    batch = claim.claim(world.bucket.pk, world.tenant.pk, [0, 1, 2], 60)
    assert batch.send_until >= begun + claim.SEND_SECONDS
