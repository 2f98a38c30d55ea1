"""Messages that are lost, doubled, late or out of order change nothing but time: the sweep rings again for what waits."""

import json
from importlib import import_module
from io import StringIO

import pytest
from django.core.management import call_command
from django_q.models import OrmQ

from ledger import drain, manifest, runs
from ledger.models import CleanupCommand, CleanupRun, Receipt
from ledger.states import CommandState, RunState
from ledger.sweep import sweep
from tests.ledger import invariants
from tests.ledger.acting import Acting, build
from webhooks.models import OutboxEvent

pytestmark = pytest.mark.django_db(transaction=True)
ROUNDS = 12


def sealed(world: Acting) -> CleanupRun:
    run, _new = runs.open_run(policy=world.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    return manifest.freeze(run)


def take_messages() -> list[tuple[str, tuple[int, ...]]]:
    messages = [(each.task["func"], each.task["args"]) for each in OrmQ.objects.order_by("pk")]
    OrmQ.objects.all().delete()
    return messages


def answer(world: Acting, message: tuple[str, tuple[int, ...]]) -> None:
    """Do what a worker does at a message; draining goes to the world's own store."""
    func, arguments = message
    if func == "ledger.tasks.drain":
        drain.after(*arguments, more=world.drain().more)
    elif func != "webhooks.tasks.dispatch":  # nobody is subscribed
        module, _, name = func.rpartition(".")
        getattr(import_module(module), name)(*arguments)


def assert_done(world: Acting, run: CleanupRun) -> None:
    run.refresh_from_db()
    assert (run.state, run.counts) == (RunState.CLOSED, {"deleted": 4})
    assert set(CleanupCommand.objects.values_list("state", flat=True)) == {CommandState.NOTIFIED}
    assert Receipt.objects.count() == OutboxEvent.objects.filter(type="media.deleted").count() == 4
    invariants.check(world.stores)


def test_where_all_that_verbs_ring_is_lost_the_sweep_alone_brings_a_run_to_its_end() -> None:
    world = build()
    for n in range(4):
        world.put(f"originals/{n}.mp4")
    run = sealed(world)
    for _ in range(ROUNDS):
        OrmQ.objects.all().delete()  # what was rung by verbs is lost
        sweep()
        for message in take_messages():
            answer(world, message)
    assert_done(world, run)
    OrmQ.objects.all().delete()
    assert not any(sweep().values())
    assert not OrmQ.objects.exists()


@pytest.mark.parametrize("order", ["doubled", "reversed"])
def test_messages_that_come_twice_or_out_of_order_change_nothing(order: str) -> None:
    world = build()
    for n in range(4):
        world.put(f"originals/{n}.mp4")
    run = sealed(world)
    for _ in range(ROUNDS):
        messages = take_messages()
        for message in messages * 2 if order == "doubled" else reversed(messages):
            answer(world, message)
        sweep()
    assert_done(world, run)


def test_the_command_sweeps_from_outside_and_says_what_it_found() -> None:
    world = build()
    world.put("originals/1.mp4")
    run = sealed(world)
    OrmQ.objects.all().delete()
    out = StringIO()
    call_command("sweep", "--json", stdout=out)
    assert json.loads(out.getvalue())["publishing"] == 1
    assert [each.task["args"] for each in OrmQ.objects.all()] == [(run.pk,)]


def test_breakers_are_judged_and_runs_closed_whatever_fails_later_in_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    world = build()
    world.put("originals/a.mp4")
    run = world.run()
    world.drain()

    def failing() -> int:
        raise RuntimeError("It broke.")

    judged = list[int]()

    def judging() -> int:
        judged.append(run.pk)
        return 0

    monkeypatch.setattr("ledger.breaker.judge_all", judging)
    monkeypatch.setattr("ledger.dispositions.reckon_unfinished", failing)
    with pytest.raises(RuntimeError):
        sweep()
    run.refresh_from_db()
    assert (judged, run.state) == ([run.pk], RunState.CLOSED)


@pytest.mark.parametrize("walk", ["webhooks.sweep.walk", "ledger.closing.notify"])
def test_nothing_else_waits_for_a_look_at_all_that_waits_to_be_told(walk: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer the more there is, until the round is ended by force."""

    def ended() -> int:
        raise TimeoutError("The round has taken too long.")

    counted = list[str]()
    for name in ("cleanup_project.base.jobpace.ring", "ledger.exports.ring", "cleanup_project.base.rollups.count"):
        monkeypatch.setattr(name, lambda *_sources, name=name: counted.append(name) or 0)
    monkeypatch.setattr(walk, ended)
    with pytest.raises(TimeoutError):
        sweep()
    assert len(counted) == 3
