"""The setting BROKER, and brokers outside of the ledger: told after the commit, and missed by nobody when they are away."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import structlog
from django.conf import LazySettings
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django_q.models import OrmQ
from django_q.signing import SignedPackage

from cleanup_project.base import brokers, queue
from cleanup_project.base.models import Alarm
from tests import servers
from tests.brokers import OUTSIDE, broker, used

CONTROL, WORK = "ledger.tasks.sweep", "ledger.tasks.drain"


@pytest.mark.parametrize(
    ("told", "options"),
    [
        ("", {"orm": "default"}),
        (" orm ", {"orm": "default"}),
        ("redis://cache:6380/3", {"broker_class": brokers.REDIS, "redis": "redis://cache:6380/3"}),
        (
            "rediss://:p%40ss@cache?ssl_ca_certs=/etc/ca.pem",
            {"broker_class": brokers.REDIS, "redis": "rediss://:p%40ss@cache?ssl_ca_certs=/etc/ca.pem"},
        ),
    ],
)
def test_a_broker_is_read(told: str, options: dict[str, Any]) -> None:
    assert brokers.options(told) == options


@pytest.mark.parametrize(
    ("told", "names"),
    [
        ("sqs://eu-central-1", ("eu-central-1", "cleanup", None)),
        ("sqs://eu-central-1/prod?endpoint=https://sqs.internal", ("eu-central-1", "prod", "https://sqs.internal")),
    ],
)
def test_queues_at_sqs_are_named_by_region_prefix_and_perhaps_an_endpoint(told: str, names: tuple[str, ...]) -> None:
    read = brokers.options(told)
    assert read["broker_class"] == brokers.SQS
    assert (read["sqs"]["region"], read["sqs"]["prefix"], read["sqs"]["endpoint_url"]) == names


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ("redis", "names no host"),
        ("redis:///0", "names no host"),
        ("amqp://u:secret@host/", "amqp is no broker"),
        ("redis://u:secret@host/zero", "number of a Redis database"),
        ("redis://u:secret@host:port/0", "no URL"),
        ("redis://u:secret/host:6379/0", "no URL"),
        ("redis://u:secret@host/0?timeout=5", "timeout: only ssl_ca_certs"),
        ("sqs://key:secret@eu-central-1/prod", "boto3's own chain"),
        ("sqs://eu-central-1:443/prod", "boto3's own chain"),
        ("sqs://eu-central-1/a/b", "prefix"),
        ("sqs://eu-central-1/prod?wait=20", "wait: only endpoint"),
        ("sqs://eu-central-1/prod?endpoint=internal", "begins with https://"),
    ],
)
def test_what_is_no_broker_is_refused_with_what_to_write_and_without_its_password(told: str, why: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=f"BROKER must be orm, redis://.*{why}") as refused:
        brokers.options(told)
    assert "secret" not in str(refused.value)


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with servers.moto_server() as url:
        yield url


@pytest.fixture(params=OUTSIDE)
def outside(request: pytest.FixtureRequest, settings: LazySettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """This process rings at a broker outside of the ledger, which is empty."""
    for name, value in servers.aws_environment().items():
        monkeypatch.setenv(name, value)
    moto = request.getfixturevalue("moto") if request.param == "sqs" else ""
    with broker(request.param, moto) as url, used(settings, url):
        if request.param == "sqs":
            settings.Q_CLUSTER["sqs"]["wait_seconds"] = 0
        yield request.param


@pytest.fixture
def asked_for(outside: str) -> str:
    """The same, where a cluster has asked for messages of each queue."""
    for key in ("cleanup", "work"):
        assert not queue.broker_of(key).dequeue()
    return outside


def waiting(key: str) -> list[tuple[str, tuple[int, ...]]]:
    """Take what waits in a queue: the task and arguments of each message."""
    made, found = queue.broker_of(key), []
    while taken := made.dequeue():
        for ack_id, package in taken:
            task = SignedPackage.loads(package)
            found.append((task["func"], task["args"]))
            made.acknowledge(ack_id)
    return found


@pytest.mark.django_db(transaction=True)
def test_a_message_is_told_after_the_commit_on_the_queue_of_its_task(asked_for: str) -> None:
    with transaction.atomic():
        queue.wake(WORK, 7)
        queue.wake(CONTROL)
        assert waiting("work") == []
    assert waiting("work") == [(WORK, (7,))]
    assert waiting("cleanup") == [(CONTROL, ())]
    queue.wake(WORK, 8)  # outside of any transaction
    assert waiting("work") == [(WORK, (8,))]
    assert not OrmQ.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_rollback_takes_the_message_back(asked_for: str) -> None:
    with transaction.atomic():
        queue.wake(WORK, 7)
        transaction.set_rollback(True)
    assert waiting("work") == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "url",
    [pytest.param("redis://127.0.0.1:9/0", marks=pytest.mark.redis), "sqs://us-east-1?endpoint=http://127.0.0.1:9"],
)
def test_a_broker_that_is_away_fails_nobodys_work_and_is_left_alone_for_a_while(
    url: str, settings: LazySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in servers.aws_environment().items():
        monkeypatch.setenv(name, value)
    with used(settings, url):
        asked = []
        enqueue = queue.broker_of("work").enqueue
        monkeypatch.setattr(queue.broker_of("work"), "enqueue", lambda task: asked.append(task) or enqueue(task))
        with transaction.atomic():
            Alarm.objects.create(kind="test", message="committed")
            queue.wake(WORK, 1)
            queue.wake(WORK, 2)
        assert Alarm.objects.filter(message="committed").exists()
        assert len(asked) == 1, "a round of the sweep does not wait for it again and again"
        assert not queue.offer(WORK, 3, key="work")
        monkeypatch.setattr(queue, "_left_alone_until", 0.0)
        assert not queue.offer(WORK, 4, key="work")
        assert len(asked) == 2


@pytest.mark.parametrize("outside", ["sqs"], indirect=True)
def test_a_queue_at_sqs_is_made_by_whoever_takes_messages_and_by_nobody_who_rings(
    outside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not queue.offer(WORK, 7, key="work")
    monkeypatch.setattr(queue, "_left_alone_until", 0.0)
    assert not queue.offer(WORK, 7, key="work"), "the first one has made it"
    assert queue.broker_of("work").dequeue() == []
    monkeypatch.setattr(queue, "_left_alone_until", 0.0)
    assert queue.offer(WORK, 7, key="work")
    assert waiting("work") == [(WORK, (7,))]


@pytest.mark.parametrize("outside", ["sqs"], indirect=True)
def test_what_is_not_acknowledged_at_sqs_comes_again(asked_for: str, settings: LazySettings) -> None:
    settings.Q_CLUSTER["retry"] = 0  # seconds for which a message is invisible that was taken
    made = queue.broker_of("work")
    assert queue.offer(WORK, 7, key="work")
    ((_, first),) = made.dequeue()
    ((ack_id, again),) = made.dequeue()
    assert first == again
    made.fail(ack_id)
    assert made.dequeue() == []


@pytest.mark.parametrize("outside", ["sqs"], indirect=True)
@pytest.mark.parametrize("away", ["queue", "store"])
def test_what_cannot_be_acknowledged_at_sqs_fails_nobody_and_is_logged(
    asked_for: str, away: str, settings: LazySettings
) -> None:
    """The cluster's monitor acknowledges, and would end by an error."""
    made = queue.broker_of("work")
    assert queue.offer(WORK, 7, key="work")
    ((ack_id, _),) = made.dequeue()
    client, url = made.queue()
    if away == "queue":
        client.delete_queue(QueueUrl=url)
    beside = used(settings, "sqs://us-east-1?endpoint=http://127.0.0.1:9") if away == "store" else nullcontext()
    with beside, structlog.testing.capture_logs() as logged:
        queue.broker_of("work").acknowledge(ack_id)
    ((event, level),) = [(each["event"], each["log_level"]) for each in logged]
    assert (event, level) == ("message not acknowledged", "warning")


@pytest.mark.parametrize("outside", ["sqs"], indirect=True)
def test_a_process_that_was_forked_opens_a_client_of_its_own(asked_for: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = queue.broker_of("work")
    before, url = made.queue()
    assert made.queue() == (before, url)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    after, same = made.queue()
    assert after is not before
    assert same == url
    before.close()
