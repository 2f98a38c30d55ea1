"""A queue at SQS drops what is older than its retention: what was lost so is rung for again, and done once."""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from django.conf import LazySettings
from django_q.signing import SignedPackage
from moto.sqs import models as moto

from cleanup_project.base import queue
from cleanup_project.operations.demo import s3
from ledger import sweep
from ledger.models import CleanupCommand, Receipt, Request
from tests.brokers import broker, used
from tests.ledger.acting import Acting
from tests.ledger.real import world_at

pytestmark = pytest.mark.django_db(transaction=True)

RETENTION = 60  # seconds, the least that SQS takes
DRAIN = "ledger.tasks.drain"


class Clock:
    """The server's, which can be put forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        seconds, milliseconds = moto.unix_time, moto.unix_time_millis
        monkeypatch.setattr(moto, "unix_time", lambda: seconds() + self.ahead)
        monkeypatch.setattr(moto, "unix_time_millis", lambda: milliseconds() + self.ahead * 1000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def world(clock: Clock, settings: LazySettings) -> Iterator[Acting]:
    """One object that is due, and its message, which nobody has taken, in a queue that keeps it for a minute."""
    with s3.server() as store, broker("sqs", store) as url, used(settings, url):
        settings.Q_CLUSTER["sqs"]["wait_seconds"] = 0
        made = world_at(store)
        for key in queue.all_keys():
            client, address = queue.broker_of(key).queue(make=True)
            client.set_queue_attributes(QueueUrl=address, Attributes={"MessageRetentionPeriod": str(RETENTION)})
        made.fill(["due/1"])
        made.run()
        yield made


def taken() -> list[tuple[str, str, tuple[Any, ...]]]:
    """What a cluster gets: (receipt handle, task, arguments). moto answers with nothing once for each that has expired."""
    answers = [queue.broker_of("work").dequeue() for _ in range(5)]
    tasks = [(handle, SignedPackage.loads(package)) for answer in answers for handle, package in answer]
    return [(handle, task["func"], task["args"]) for handle, task in tasks]


def answered(messages: list[tuple[str, str, tuple[Any, ...]]]) -> None:
    """As a cluster does: carried out, then acknowledged."""
    for handle, task, arguments in messages:
        module, _, name = task.rpartition(".")
        getattr(import_module(module), name)(*arguments)
        queue.broker_of("work").acknowledge(handle)


def is_done_once() -> bool:
    (state,) = CleanupCommand.objects.values_list("state", flat=True)
    return state in {"deleted", "notified"} and (Receipt.objects.count(), Request.objects.count()) == (1, 1)


def test_what_expires_before_anybody_takes_it_is_rung_for_again_by_the_sweep(world: Acting, clock: Clock) -> None:
    clock.ahead = RETENTION + 1
    assert taken() == []
    assert not Request.objects.exists()
    sweep.sweep()
    messages = taken()
    assert (DRAIN, (world.bucket.pk,)) in [message[1:] for message in messages]
    answered(messages)
    assert is_done_once()


@pytest.mark.parametrize("forgotten", [False, True], ids=["kept in mind", "forgotten"])
def test_what_expires_while_it_is_worked_on_is_acknowledged_all_the_same(
    world: Acting, clock: Clock, forgotten: bool
) -> None:
    clock.ahead = RETENTION - 10
    messages = taken()
    assert (DRAIN, (world.bucket.pk,)) in [message[1:] for message in messages]
    clock.ahead = RETENTION + 1
    if forgotten:  # then the receipt handle is refused
        client, address = queue.broker_of("work").queue()
        client.purge_queue(QueueUrl=address)
    answered(messages)
    assert is_done_once()
    clock.ahead += 3600  # longer than anything is hidden
    assert taken() == []
    sweep.sweep()
    answered(taken())
    assert is_done_once()
