"""Brokers besides the ledger's database, as servers on loopback; and this process, told to use one of them."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from uuid import uuid4

import pytest
import redis
from django_q.models import OrmQ

from cleanup_project.base import brokers, queue
from tests.servers import _free_ports

NAMES = ["orm", pytest.param("redis", marks=pytest.mark.redis), "sqs"]
OUTSIDE = NAMES[1:]


@contextmanager
def redis_server() -> Iterator[str]:
    """The URL of a Redis that keeps nothing."""
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("redis-server is missing: apt-get install redis-server")
    (port,) = _free_ports(1)
    with tempfile.TemporaryDirectory(prefix="redis") as work:
        options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", work]
        process = subprocess.Popen([binary, "--port", str(port), *options], stdout=subprocess.DEVNULL)
        try:
            with redis.Redis(port=port) as client:
                until = time.monotonic() + 30
                while not answers(client):
                    assert time.monotonic() < until, "redis-server does not start"
                    time.sleep(0.02)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.kill()
            process.wait()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@contextmanager
def broker(name: str, moto_url: str) -> Iterator[str]:
    """The setting BROKER for a broker that runs and holds nothing. SQS is moto's."""
    sqs = f"sqs://us-east-1/{uuid4().hex}?endpoint={moto_url}"
    with redis_server() if name == "redis" else nullcontext({"orm": "orm", "sqs": sqs}[name]) as url:
        yield url


@contextmanager
def used(settings: Any, url: str) -> Iterator[None]:
    """Have this process ring there, for one test."""
    without = {name: value for name, value in settings.Q_CLUSTER.items() if name not in ("orm", "broker_class")}
    settings.Q_CLUSTER = without | brokers.options(url)
    queue.broker_of.cache_clear()
    queue._left_alone_until = 0.0
    try:
        yield
    finally:
        for key in ("cleanup", "work"):
            close(queue.broker_of(key))
        queue.broker_of.cache_clear()
        queue._left_alone_until = 0.0


def close(made: Any) -> None:
    if getattr(made, "opened", None):
        made.opened[1].close()
    elif isinstance(made.connection, redis.Redis):
        made.connection.close()


def lose_what_waits(key: str) -> None:
    """As a server that forgets, or a message that waited for longer than it is kept."""
    made = queue.broker_of(key)
    if queue.is_in_ledger():
        OrmQ.objects.filter(key=key).delete()
    elif isinstance(made.connection, redis.Redis):
        made.purge_queue()
    else:
        client, url = made.queue()
        client.purge_queue(QueueUrl=url)
