"""Starts and stops what the demo runs on, and plays the main job once."""

import csv
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection, transaction
from django.utils import timezone

from cleanup_project.base import postgres, queue
from cleanup_project.operations import servers
from cleanup_project.operations.demo import dataset, scene, store
from cleanup_project.operations.demo.receiver import receiver
from cleanup_project.operations.demo.scene import Scene
from ledger import manifest, runs
from ledger.models import CleanupCommand, CleanupRun
from ledger.states import CommandState
from retention.models import Bucket, Tenant
from retention.sources.importing import import_file
from retention.sources.listing import sync
from retention.storage import ListedVersion
from webhooks import endpoints
from webhooks.models import Delivery

START_SECONDS: Final = 30
STOP_SECONDS: Final = 10
WORKER_STOP_SECONDS: Final = 60
QUIET_SECONDS: Final = 120


@dataclass
class Played:
    """What the demo did, for its summary and its check. `listed`: everything in the store before anything was destroyed."""

    scene: Scene
    objects: list[dataset.Put]
    stale: int
    expected_listing: int
    listed: dict[store.Name, ListedVersion]
    runs: list[CleanupRun]
    log: Path


def use(folder: Path) -> None:
    """Start again with the demo's own settings, which its processes inherit, where they are not the present ones."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = {
        "ONE_CLUSTER": "1",
        "HTTPS": "0",
        "WEBHOOK_ALLOW_HTTP": "1",
        "WEBHOOK_ALLOW_CIDRS": "127.0.0.0/8",
        "MFA_REQUIRED": "0",
    }
    if settings.EMBEDDED_DATABASE:
        wanted["DATA_DIR"] = str(folder)
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        sys.stdout.flush()
        os.environ.update(wanted)
        postgres.leave()
        os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 - ourselves


def empty_database() -> None:
    """A database without any earlier demo. Somebody's own server must be empty already: it is never cleared."""
    with connection.cursor() as cursor:
        if settings.EMBEDDED_DATABASE:
            cursor.execute("DROP SCHEMA public CASCADE")
            cursor.execute("CREATE SCHEMA public")
        elif "retention_tenant" in connection.introspection.table_names(cursor) and Tenant.objects.exists():
            raise CommandError(
                "The database that DATABASE_URL names holds tenants already, and the demo would mix with them. "
                "Name an empty database, or unset DATABASE_URL for an embedded one."
            )
    call_command("migrate", verbosity=0)


def play(endpoint_url: str, folder: Path, say: Callable[[str], None]) -> Played:
    """Fill the store, list it, freeze what each policy would destroy, and open a run where it may."""
    today = timezone.now().date()
    objects = dataset.objects(today)
    expected = store.fill(endpoint_url, objects)
    say(f"stored {expected} versions and delete markers in two buckets at {endpoint_url}")
    made = scene.build(endpoint_url, today)
    for bucket in made.buckets:
        listed = sync(bucket)
        say(f"catalogued {listed.versions} versions of {bucket.name}")
    stale = import_stale(made.buckets[0], folder, dataset.stale(today))
    before = dict(store.listing(made.buckets))
    opened = []
    for policy in made.policies:
        dry, _new = runs.open_run(policy=policy, by=None, mode=CleanupRun.Mode.DRY_RUN)
        opened.append(manifest.freeze(dry))
        say(f"froze {opened[-1].item_count} items of {policy.code} (dry run)")
    for policy in made.policies:
        if runs.default_mode(policy) == CleanupRun.Mode.ENFORCE:
            with transaction.atomic():
                enforcing, _new = runs.open_run(policy=policy, by=None)
                queue.wake("ledger.tasks.freeze", enforcing.pk)
            opened.append(enforcing)
    return Played(made, objects, stale, expected, before, opened, folder / "receiver.jsonl")


def import_stale(bucket: Bucket, folder: Path, rows: list[dict[str, str]]) -> int:
    """Import what another system's old export names; returns how many rows."""
    path = folder / "old-export.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return import_file(bucket, path, format="csv", whole=False).recorded


@contextmanager
def receiver_of_notices(played: Played) -> Iterator[None]:
    """Another system that gets every notice, checks its signature, and loses its first acknowledgement."""
    (port,) = servers.free_ports(1)
    endpoint, secret = endpoints.create(
        tenant="acme",
        name="Asset management",
        url=f"http://127.0.0.1:{port}/webhooks",
        event_types=["*"],
        by=played.scene.operator,
    )
    with receiver(secret, played.log, port=port):
        endpoints.enable(endpoint=endpoint, by=played.scene.operator)
        yield


@contextmanager
def worker() -> Iterator[None]:
    """The supervised cluster, in a process of its own; ends in order."""
    process = child(["manage.py", "worker"])
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        end(process, WORKER_STOP_SECONDS)


def wait_until_quiet(played: Played, stop: threading.Event) -> bool:
    """Wait until every run has closed and every notice is acknowledged; False where that takes too long."""
    until = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < until and not stop.is_set():
        busy = (
            CleanupRun.objects.open().filter(mode=CleanupRun.Mode.ENFORCE).exists()
            or CleanupCommand.objects.filter(state__in=[CommandState.READY, CommandState.DELETED]).exists()
            or Delivery.objects.filter(state=Delivery.State.PENDING).exists()
        )
        if not busy:
            for run in played.runs:
                run.refresh_from_db()
            return True
        time.sleep(0.2)
    return False


def told(played: Played) -> Iterator[str]:
    """What became of the enforcing runs, one line each."""
    for run in played.runs:
        if run.mode == CleanupRun.Mode.ENFORCE:
            run.refresh_from_db()
            counts = ", ".join(
                f"{number} {outcome.replace('_', ' ')}" for outcome, number in (run.counts or {}).items()
            )
            yield f"run {run.key} is {run.get_state_display()}: {counts or 'not counted yet'}"
    example = CleanupCommand.objects.filter(state=CommandState.DEAD).order_by("pk").first()
    if example is not None:
        yield f"one that needs a person: uv run manage.py explain '{example.key}'"
    yield f"{Delivery.objects.filter(state=Delivery.State.DELIVERED).count()} notices acknowledged"


@contextmanager
def web_server(port: int) -> Iterator[str]:
    """gunicorn on localhost, in a process of its own; yields its base URL once it answers."""
    refuse_taken(port)
    options = ["--threads", "4", "--no-control-socket", "--log-level", "warning"]
    process = child(["-m", "gunicorn", "cleanup_project.wsgi", "--bind", f"127.0.0.1:{port}", *options])
    try:
        url = f"http://localhost:{port}"
        wait_for(url, process)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        end(process, STOP_SECONDS)


def child(arguments: list[str]) -> subprocess.Popen[bytes]:
    """A process of the demo's, in a session of its own: Ctrl-C reaches the demo alone, which then ends it in order."""
    return subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
        [sys.executable, *arguments],
        cwd=settings.BASE_DIR,
        env=os.environ | {"DATA_DIR": str(settings.DATA_DIR), "LOG_LEVEL": "WARNING"},
        start_new_session=True,
    )


def end(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise CommandError(f"Port {port} is taken: name another one with --port.") from error


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        with suppress(OSError), urllib.request.urlopen(f"{url}/signin/", timeout=5):  # noqa: S310
            return
        time.sleep(0.1)
    raise CommandError("The web server did not start; its messages are above.")
