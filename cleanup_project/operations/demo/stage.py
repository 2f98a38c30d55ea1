"""Starts and stops what the demo runs on, and plays the main job once."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.utils import timezone

from cleanup_project.operations import servers
from cleanup_project.operations.demo import dataset, scene, store
from cleanup_project.operations.demo.scene import Scene
from ledger import manifest, runs
from ledger.models import CleanupRun
from retention.models import Tenant
from retention.sources.listing import sync

START_SECONDS: Final = 30
STOP_SECONDS: Final = 10


@dataclass
class Played:
    """What the demo did, for its summary and its check."""

    scene: Scene
    objects: list[dataset.Put]
    expected_listing: int
    runs: list[CleanupRun]


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


def play(endpoint_url: str, say: Callable[[str], None]) -> Played:
    """Fill the store, list it, and freeze a manifest for each policy; where enforcement is on, also an enforcing one."""
    today = timezone.now().date()
    objects = dataset.objects(today)
    expected = store.fill(endpoint_url, objects)
    say(f"stored {expected} versions and delete markers in two buckets at {endpoint_url}")
    made = scene.build(endpoint_url, today)
    for bucket in made.buckets:
        listed = sync(bucket)
        say(f"catalogued {listed.versions} versions of {bucket.name}")
    opened = []
    for policy in made.policies:
        dry, _new = runs.open_run(policy=policy, by=None, mode=CleanupRun.Mode.DRY_RUN)
        opened.append(manifest.freeze(dry))
        if runs.default_mode(policy) == CleanupRun.Mode.ENFORCE:
            enforcing, _new = runs.open_run(policy=policy, by=None)
            opened.append(manifest.freeze(enforcing))
    for run in opened:
        say(
            f"froze {run.item_count} items of {run.policy.code} ({run.get_mode_display()}, now {run.get_state_display()})"
        )
    return Played(made, objects, expected, opened)


@contextmanager
def s3_server() -> Iterator[str]:
    """moto's S3 server on a free port of this machine, and credentials that it accepts."""
    with servers.credentials(), servers.moto() as endpoint_url:
        yield endpoint_url


@contextmanager
def web_server(port: int) -> Iterator[str]:
    """gunicorn on localhost, in a process of its own; yields its base URL once it answers."""
    refuse_taken(port)
    environment = os.environ | {
        "DATA_DIR": str(settings.DATA_DIR),
        "HTTPS": "0",
        "LOG_LEVEL": "WARNING",
    }
    command = [sys.executable, "-m", "gunicorn", "cleanup_project.wsgi", "--bind", f"127.0.0.1:{port}"]
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
        [*command, "--threads", "4", "--no-control-socket", "--log-level", "warning"],
        cwd=settings.BASE_DIR,
        env=environment,
        start_new_session=True,  # Ctrl-C reaches the demo alone, which then ends this process in order
    )
    try:
        url = f"http://localhost:{port}"
        wait_for(url, process)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS)
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
        with suppress(OSError), urllib.request.urlopen(f"{url}/admin/login/", timeout=5):  # noqa: S310
            return
        time.sleep(0.1)
    raise CommandError("The web server did not start; its messages are above.")
