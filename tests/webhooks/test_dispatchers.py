"""Dispatchers as real processes: several at once, one killed between sending and recording, an acknowledgement lost."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest
import structlog
from django.conf import settings
from django.db import connection

from cleanup_project.base.models import User
from cleanup_project.operations.demo import receiver as demo
from tests.webhooks.http import Request, receiver
from tests.webhooks.world import assets, endpoint, expire_leases, make_due, notice, sql, states, tell
from webhooks import dispatch
from webhooks.dispatch import Dispatched
from webhooks.models import Delivery, DeliveryAttempt, Endpoint, OutboxEvent

pytestmark = pytest.mark.django_db(transaction=True)

PRELUDE = """
import sys
import django
django.setup()
from django.conf import settings
from django.db import connections
settings.DATABASES["default"]["NAME"] = connections["default"].settings_dict["NAME"] = sys.argv[1]
settings.WEBHOOK_ALLOW_HTTP, settings.WEBHOOKS_SETTLED_TASK = True, ""
settings.WEBHOOK_ALLOW_CIDRS = ["127.0.0.0/8"]
from webhooks import dispatch
"""
UNTIL_DONE = (
    PRELUDE
    + """
import time
from webhooks.models import Delivery
until = time.monotonic() + 60
while Delivery.objects.filter(state="pending").exists() and time.monotonic() < until:
    dispatch.dispatch(threads=4)
    time.sleep(0.01)
"""
)
ONCE = PRELUDE + "dispatch.dispatch(threads=1)"


@contextmanager
def process(script: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process on the test's database; killed if the test does not let it end."""
    command = [sys.executable, "-c", script, str(connection.settings_dict["NAME"])]
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "cleanup_project.settings", "LOG_LEVEL": "CRITICAL"}
    started = subprocess.Popen(command, cwd=settings.BASE_DIR, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def ended(started: subprocess.Popen[str]) -> None:
    _, err = started.communicate(timeout=120)
    assert started.returncode == 0, err


def work_until_done() -> None:
    """A dispatcher in a thread, on a connection of its own."""
    until = time.monotonic() + 60
    try:
        while Delivery.objects.filter(state="pending").exists() and time.monotonic() < until:
            dispatch.dispatch(threads=2)
            time.sleep(0.01)
    finally:
        connection.close()


def test_six_dispatchers_keep_the_order_of_every_lane(operator: User) -> None:
    """Whatever fails at random: nothing twice at a time, nothing out of order, nothing lost, at two endpoints at once."""
    chance = random.Random(3)
    busy, overlaps = Counter[str](), list[str]()

    def answer(request: Request) -> int | bytes:
        lane = f"{request.path} {json.loads(request.body)['subject']}"
        busy[lane] += 1
        overlaps.extend([lane] if busy[lane] > 1 else [])
        time.sleep(chance.random() * 0.01)
        busy[lane] -= 1
        return chance.choice([204, 204, 204, 500, b"HTTP"])

    with receiver(answer) as inbox:
        for name in ("one", "two"):
            endpoint(operator, f"{inbox.url}/{name}", name=name)
        tell(*assets(8, events=4))
        with process(UNTIL_DONE) as first, process(UNTIL_DONE) as second, ThreadPoolExecutor(4) as pool:
            others = [pool.submit(work_until_done) for _ in range(4)]
            while first.poll() is None or second.poll() is None or not all(each.done() for each in others):
                make_due()
                time.sleep(0.05)
            ended(first)
            ended(second)
            for each in others:
                each.result()
    assert states() == {"delivered": 64}
    assert overlaps == []
    order = defaultdict[tuple[str, str], list[int]](list)
    for request in inbox.requests:
        event = json.loads(request.body)
        order[request.path, event["subject"]].append(event["sequence"])
    assert len(order) == 16
    assert all(numbers == sorted(numbers) and set(numbers) == {1, 2, 3, 4} for numbers in order.values())
    assert not OutboxEvent.objects.filter(settled_at=None).exists()
    assert DeliveryAttempt.objects.count() == len(inbox.requests)


def test_a_dispatcher_killed_after_sending_leaves_evidence_and_the_delivery_goes_out_again(operator: User) -> None:
    arrived, go_on = Event(), Event()

    def answer(request: Request) -> int:
        arrived.set()
        go_on.wait(30)
        return 204

    with receiver(answer) as inbox:
        _, secret = endpoint(operator, inbox.url)
        tell(notice("a", "1"), notice("a", "2"))
        with process(ONCE) as victim:
            assert arrived.wait(60)
            victim.send_signal(signal.SIGKILL)
            victim.wait()
        go_on.set()
        assert dispatch.dispatch() == Dispatched()  # its lease still stands
        expire_leases()
        assert dispatch.dispatch() == Dispatched(sent=2, delivered=2)
    first, again, second = inbox.requests
    assert (first.id, first.body) == (again.id, again.body)
    assert again.is_signed_by(secret)
    assert second.id != first.id
    left, finished = DeliveryAttempt.objects.filter(delivery__sequence=1).order_by("number")
    assert (left.finished_at, left.status, finished.status) == (None, None, 204)
    assert Delivery.objects.get(sequence=1).attempts == 1


def test_a_retry_that_is_due_soon_goes_out_in_the_same_dispatch(
    operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "SOON", 8.0)
    with receiver(lambda request: 204 if len(inbox.requests) > 1 else 503) as inbox:
        endpoint(operator, inbox.url)
        tell(notice("a", "1"))
        assert dispatch.dispatch() == Dispatched(sent=2, delivered=1, retried=1)
    assert len(inbox.requests) == 2


def test_nobody_waits_for_what_is_due_and_cannot_be_claimed(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "SOON", 8.0)
    made, _ = endpoint(operator)
    made.secrets.update(key_encrypted=b"damaged")
    tell(notice("a", "1"))
    with structlog.testing.capture_logs() as logs:
        assert dispatch.dispatch() == Dispatched()
    assert len(logs) == 1


def test_a_slow_endpoint_leaves_the_others_their_threads(operator: User) -> None:
    go_on = Event()

    def answer(request: Request) -> int:
        go_on.wait(8)
        return 204

    with receiver() as quick, receiver(answer) as slow:
        endpoint(operator, slow.url, name="slow")
        endpoint(operator, quick.url, name="quick")
        tell(*assets(20))
        with process(ONCE.replace("threads=1", "threads=4")) as working:
            until = time.monotonic() + 60
            while len(quick.requests) < 20 and time.monotonic() < until and working.poll() is None:
                time.sleep(0.05)
            # Half of the threads while both have something; three quarters once it is alone.
            assert len(quick.requests) == 20
            assert 2 <= len(slow.requests) <= 3
            go_on.set()
            ended(working)
    assert states() == {"delivered": 40}


def test_a_lost_acknowledgement_becomes_a_duplicate_that_the_receiver_suppresses(
    operator: User, tmp_path: Path
) -> None:
    made, secret = endpoint(operator)
    log = tmp_path / "received.jsonl"
    with demo.receiver(secret, log) as url:
        sql("UPDATE webhooks_endpoint SET url = %s", url)
        emitted = tell(notice("a", "1"), notice("b", "2"))
        assert dispatch.dispatch(threads=1) == Dispatched(sent=2, delivered=1, retried=1)
        make_due()
        assert dispatch.dispatch(threads=1) == Dispatched(sent=1, delivered=1)
    received = demo.read_log(log)
    assert [(each["id"], each["duplicate"], each["acknowledged"]) for each in received] == [
        (emitted[0].event_id, False, False),
        (emitted[1].event_id, False, True),
        (emitted[0].event_id, True, True),
    ]
    assert all(each["verified"] for each in received)
    assert Endpoint.objects.get(pk=made.pk).deliveries.filter(state="delivered").count() == 2


def test_a_receiver_with_another_secret_refuses(operator: User, tmp_path: Path) -> None:
    _, other = endpoint(operator, name="other", event_types=["run.closed"])
    log = tmp_path / "received.jsonl"
    with demo.receiver(other, log, drop_first=False) as url:
        endpoint(operator, url)
        (emitted,) = tell(notice("a", "1"))
        assert dispatch.dispatch() == Dispatched(sent=1, retried=1)
    assert demo.read_log(log) == [{"id": emitted.event_id, "verified": False}]
    assert DeliveryAttempt.objects.get().status == 401
