"""Three supervised workers on one ledger come to the one right end, whatever carries their messages and whoever is killed.

Each of two is killed by the store itself, when it has executed a deletion of theirs and has not answered: a whole session,
and a main process alone. What waits in the queue is doubled before and lost in mid-run.
"""

import io
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import parse_qs, unquote
from xml.etree import ElementTree

import pytest
from django.conf import LazySettings
from django.db import connection
from django.db.models import Count, F

from cleanup_project.base import limits, queue
from cleanup_project.base.models import Heartbeat
from cleanup_project.operations.demo import s3
from ledger import runs, schedule, sweep
from ledger.models import CleanupCommand, CleanupRun, Receipt, Request
from ledger.states import CommandState, RunState
from retention.models import Bucket
from tests.brokers import NAMES, broker, lose_what_waits, used
from tests.ledger import invariants
from tests.ledger.acting import Acting
from tests.ledger.real import world_at
from tests.operations.clusters import members, until, worker
from tests.webhooks.http import Request as Received
from tests.webhooks.http import receiver
from tests.webhooks.world import endpoint, make_due, sql
from tests.world import hold, listed
from webhooks.eventtypes import EVENT_TYPES
from webhooks.models import Delivery, OutboxEvent

pytestmark = pytest.mark.django_db(transaction=True)

DUE, DENIED, HELD = 100, 3, 2
PER_SECOND = 20  # keys: slow enough for all three to take part
LIVING = 3.0  # seconds; whoever has had a lease for longer is dead
LOOPBACK = {"WEBHOOK_ALLOW_HTTP": "1", "WEBHOOK_ALLOW_CIDRS": "127.0.0.0/8"}
SMALL = {"ONE_CLUSTER": "1", "WORKERS": "1"}


class Watching(s3.Store):
    """The demo's store, which counts what it is asked to delete, and tells it before it answers."""

    sent: Counter[str] = Counter()
    executed: Callable[[set[str]], None] = staticmethod(lambda keys: None)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        keys = self.asked(environ)
        type(self).sent.update(keys)
        answer = super().__call__(environ, start_response)
        if keys:
            type(self).executed(keys)
        return answer

    def asked(self, environ: dict[str, Any]) -> set[str]:
        query = parse_qs(environ["QUERY_STRING"], keep_blank_values=True)
        if environ["REQUEST_METHOD"] == "DELETE" and "versionId" in query:
            return {unquote(environ["PATH_INFO"]).split("/", 2)[2]}
        if environ["REQUEST_METHOD"] != "POST" or "delete" not in query:
            return set()
        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
        environ["wsgi.input"] = io.BytesIO(body)
        asked = ElementTree.fromstring(body)  # noqa: S314 - our own request
        return {each.text or "" for each in asked.iter(f"{{{s3.S3}}}Key")}


class Killer:
    """Kills whoever has sent what the store has just executed: first a session, then a main process of another."""

    def __init__(self) -> None:
        self.killed: list[int] = []

    def __call__(self, keys: set[str]) -> None:
        if len(self.killed) == 2:
            return
        try:
            sender = Request.objects.filter(command__targets__key__in=keys).latest("made_at").worker
        finally:
            connection.close()  # this thread's, which ends with its request
        session = os.getsid(int(sender.rpartition(":")[2]))
        if session not in self.killed:
            self.killed.append(session)
            (os.killpg if len(self.killed) == 1 else os.kill)(session, signal.SIGKILL)


@contextmanager
def three_workers(**environment: str) -> Iterator[list[int]]:
    """Sessions of their clusters, once all run; in the end they stop in order, and leave no process behind."""
    with ExitStack() as started:
        workers = [started.enter_context(worker(**SMALL, **LOOPBACK, **environment)) for _ in range(3)]
        until(lambda: queue.wake(queue.PULSE) or Heartbeat.objects.exclude(last_start_at=None).count() == 3, "clusters")
        sessions = list(Heartbeat.objects.values_list("pid", flat=True))
        yield sessions
        sessions += Heartbeat.objects.exclude(pid__in=sessions).values_list("pid", flat=True)
        for each in workers:
            each.send_signal(signal.SIGTERM)
        assert [each.wait(60) for each in workers] == [0, 0, 0]
        assert not any(map(members, sessions)), "orphans"
        assert not Heartbeat.objects.filter(stopped_at=None).exists()


def time_passes() -> None:
    """Leases of the dead end, what waits for another attempt is due, and a minute is over."""
    time.sleep(0.4)
    for table in ("ledger_cleanupcommand", "webhooks_delivery"):
        lease = limits.LEASE if table == "ledger_cleanupcommand" else limits.DISPATCH_LEASE
        taken = f"lease_until < now() + interval '{lease - LIVING} s'"
        sql(f"UPDATE {table} SET lease_until = now() - interval '1 s' WHERE {taken}")
    sql("UPDATE ledger_cleanupcommand SET due_at = now() WHERE state = 'ready' AND lease_until IS NULL")
    make_due()
    sweep.sweep()


def is_over(run: CleanupRun) -> bool:
    time_passes()
    run.refresh_from_db()
    unsettled = CleanupCommand.objects.filter(state__in=[CommandState.READY, CommandState.DELETED])
    pending = Delivery.objects.filter(state=Delivery.State.PENDING)
    return run.state == RunState.CLOSED and not unsettled.exists() and not pending.exists()


def opened(world: Acting) -> CleanupRun:
    """A run whose every step is rung for more often than it should be."""
    run, _new = runs.open_run(policy=world.revision.policy, by=None, mode=CleanupRun.Mode.ENFORCE)
    for _ in range(3):
        queue.wake(schedule.FREEZE, run.pk)
        queue.wake("ledger.tasks.drain", world.bucket.pk)
    return run


@pytest.mark.parametrize("name", NAMES)
def test_three_workers_of_which_two_are_killed_come_to_the_one_end(
    name: str, settings: LazySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ONE_CLUSTER, settings.WEBHOOK_ALLOW_HTTP, settings.WEBHOOK_ALLOW_CIDRS = True, True, ["127.0.0.0/8"]
    monkeypatch.setattr(queue, "TICK_EVERY", queue.TICK_EVERY * 0)
    monkeypatch.setattr(s3, "Store", Watching)
    monkeypatch.setattr(Watching, "sent", Counter())
    killer = Killer()
    monkeypatch.setattr(Watching, "executed", staticmethod(killer))
    heard = list[str]()

    def drops_first(request: Received) -> bytes | int:
        heard.append(request.id)
        return b"" if len(heard) == 1 else 204

    with s3.server() as store, broker(name, store) as url, used(settings, url), receiver(drops_first) as inbox:
        world = world_at(store)
        Bucket.objects.filter(pk=world.bucket.pk).update(keys_per_second=PER_SECOND)
        listed(world.bucket)
        world.fill([f"due/{n:03}" for n in range(DUE)] + [f"due/denied-{n}" for n in range(DENIED)])
        world.fill([f"held/{n}" for n in range(HELD)])
        # Alarms are told whenever the watch next looks, which may be while the workers stop: not what this is about.
        told_of = sorted(each for each in EVENT_TYPES if not each.startswith("alarm."))
        _, secret = endpoint(world.people["operator"], inbox.url, tenant=world.tenant.code, event_types=told_of)
        hold(world.tenant, world.bucket, "held/", by=world.people["compliance"])
        with three_workers(BROKER=url):
            run = opened(world)
            until(lambda: time_passes() or len(killer.killed) == 2, "two victims")
            lose_what_waits("cleanup")
            until(lambda: is_over(run), "an end of everything")
            until(lambda: sum(Heartbeat.objects.values_list("restarts", flat=True)) == 2, "two restarts")
        assert_the_one_end(world, run)
        assert all(request.is_signed_by(secret) for request in inbox.requests)
        assert heard[0] in heard[1:], "the dropped acknowledgement was asked for again, under the same id"
        assert set(heard) == set(Delivery.objects.values_list("event__event_id", flat=True))


def assert_the_one_end(world: Acting, run: CleanupRun) -> None:
    assert Counter(CleanupCommand.objects.values_list("state", flat=True)) == {"notified": DUE, "dead": DENIED}
    assert run.item_count == sum(run.counts.values()) == DUE + DENIED
    assert sum(part.held for part in run.parts.all()) == HELD
    assert Receipt.objects.count() == Receipt.objects.values("command_key").distinct().count() == DUE
    told = OutboxEvent.objects.filter(type="media.deleted").annotate(deliveries_made=Count("deliveries"))
    assert list(told.values_list("deliveries_made", flat=True)) == [1] * DUE
    assert set(Delivery.objects.values_list("state", flat=True)) == {"delivered"}
    requests = dict(Request.objects.values_list("command__targets__key").annotate(n=Count("token")))
    for key, sent in Watching.sent.items():
        assert sent <= requests[key], f"{key} was sent more often than is on record"
    lost = CleanupCommand.objects.filter(lease_losses__gt=0, state="notified", claims__gt=F("lease_losses"))
    assert lost.exists(), "somebody was killed in the middle of it"
    invariants.check(world.stores)
