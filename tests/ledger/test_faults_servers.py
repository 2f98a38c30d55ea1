"""The servers under a drain go away and come back: PostgreSQL, the object store, and the drain itself as a command."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import OperationalError, connection, connections

from cleanup_project.base import postgres
from ledger import claim, settle, sweep
from ledger import drain as draining
from ledger.models import CleanupCommand, Receipt
from ledger.states import RunState
from retention.models import Bucket
from tests import servers
from tests.ledger import invariants
from tests.ledger.acting import Acting, build
from tests.ledger.folder import FolderStore
from tests.ledger.processes import Say, worker
from tests.ledger.real import world_at
from tests.ledger.threads import until
from webhooks.models import OutboxEvent

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in servers.aws_environment().items():
        monkeypatch.setenv(name, value)


def assert_all_destroyed(world: Acting, number: int) -> None:
    sweep.sweep()
    assert Receipt.objects.count() == OutboxEvent.objects.filter(type="media.deleted").count() == number
    assert CleanupCommand.objects.filter(state="notified", requests__isnull=False).distinct().count() == number
    invariants.check(world.stores)


@pytest.fixture
def own_server() -> Iterator[postgres._Cluster]:
    """A PostgreSQL of this test's own."""
    base = Path(tempfile.mkdtemp(prefix="faults"))
    try:
        before = set(postgres._attached)
        postgres.ensure_running(base / "data")
        (cluster,) = set(postgres._attached) - before
        yield cluster
        postgres._leave(cluster)
    finally:
        shutil.rmtree(base)


def test_postgresql_restarts_under_a_drain_while_it_deletes_and_while_it_settles(
    own_server: postgres._Cluster, tmp_path: Path
) -> None:
    def crash() -> None:
        own_server.run("pg_ctl", "restart", "-m", "immediate")

    def work(say: Say) -> None:
        connections["default"].settings_dict.update(
            HOST=str(own_server.read_socket_folder()),
            NAME=postgres.DATABASE,
            USER=postgres.USER,
            PORT=str(postgres.PORT),
        )
        call_command("migrate", verbosity=0)
        world = build(FolderStore(tmp_path / "store"))
        claim.BATCH = 5
        world.fill([f"{n}" for n in range(10)])
        run = world.run()
        world.store.between = lambda gone: gone == 5 and crash()
        with pytest.raises(OperationalError):
            world.drain()
        connection.close()
        world.store.between = lambda gone: None
        world.leases_expire()

        def settle_after_a_crash(*arguments: Any) -> settle.Settled:
            draining.settle = settle.settle
            crash()
            return settle.settle(*arguments)

        draining.settle = settle_after_a_crash
        say(str(world.drain().gone))
        assert set(Receipt.objects.values_list("outcome", flat=True)) == {"by_absence", "deleted"}
        assert_all_destroyed(world, 10)
        run.refresh_from_db()
        assert run.state == RunState.CLOSED

    with worker(work) as child:
        assert child.heard() == "10"
        assert child.ended() == 0


@pytest.mark.seaweed
def test_the_store_stops_and_starts_under_a_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    with servers.seaweed() as store:
        store.start()
        world = world_at(store.url)
        monkeypatch.setattr(claim, "BATCH", 10)
        world.fill([f"{n:02}" for n in range(30)])
        run = world.run()
        calls = list[str]()

        def stop(operation: str, _refs: object) -> None:
            calls.append(operation)
            if calls.count("delete_versions") == 2:
                store.stop()

        world.store.after = stop
        drained = world.drain()
        assert drained.gone == 10, "the second batch was deleted, and nobody could see that"
        assert set(CleanupCommand.objects.filter(inspect_due__isnull=False).values_list("claims", flat=True)) == {1}
        world.store.after = lambda operation, refs: None
        world.due_now()
        assert world.drain().gone == 0, "the store is down"
        store.start()
        for _ in range(2):
            world.due_now()
            world.drain()
        assert set(Receipt.objects.values_list("outcome", flat=True)) == {"by_absence", "deleted"}
        assert_all_destroyed(world, 30)
        run.refresh_from_db()
        assert run.state == RunState.CLOSED


def command(*arguments: str) -> subprocess.Popen[str]:
    """`manage.py` as an operator starts it, on the test's database."""
    place = connection.settings_dict
    url = f"postgresql://{place['USER']}@/{place['NAME']}?host={quote(place['HOST'], safe='')}&port={place['PORT']}"
    environment = os.environ | {
        "DATABASE_URL": url,
        "LOG_LEVEL": "ERROR",
        "DJANGO_SETTINGS_MODULE": "cleanup_project.settings",
    }
    return subprocess.Popen(
        [sys.executable, "manage.py", *arguments],
        cwd=settings.BASE_DIR,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command_drain_is_killed_and_another_one_ends_its_work() -> None:
    with servers.moto_server() as url:
        world = world_at(url)
        Bucket.objects.filter(pk=world.bucket.pk).update(keys_per_second=20)
        world.fill([f"{n:02}" for n in range(60)])
        world.run()
        first = command("drain", "--json")
        until(Receipt.objects.exists)
        first.send_signal(signal.SIGKILL)
        first.communicate()
        assert first.returncode == -signal.SIGKILL
        left = 60 - Receipt.objects.count()
        assert left
        world.leases_expire()
        world.due_now()
        second = command("drain", "--json")
        out, err = second.communicate(timeout=120)
        assert second.returncode == 0, err
        said = json.loads(out)
        if said["gone"] < left:  # some had not been sent when they were looked at: they are due again a little later
            world.due_now()
            world.drain()
        assert_all_destroyed(world, 60)
