"""The demo does the main job once, from nothing, and finds no deviation; and its check can fail."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from django.conf import settings

from cleanup_project.operations.demo import check
from cleanup_project.operations.demo.stage import Played
from cleanup_project.operations.servers import free_ports
from retention.models import Bucket
from tests.world import version


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    left_out = {"DATABASE_URL", "DATA_DIR", "PYTHONUNBUFFERED"}
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    return subprocess.Popen(
        [sys.executable, "manage.py", "demo", "--data", str(folder), *arguments],
        cwd=settings.BASE_DIR,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_line(demo: subprocess.Popen[str], beginning: str) -> None:
    """Read what it prints until the line comes; a process that says nothing is ended, and the test with it."""
    assert demo.stdout is not None
    watchdog = threading.Timer(120, demo.kill)
    watchdog.start()
    try:
        assert any(line.startswith(beginning) for line in demo.stdout)
    finally:
        watchdog.cancel()


def test_the_check_finds_the_main_job_done(tmp_path: Path) -> None:
    demo = start(tmp_path / "d", "--check", "--port", str(free_ports(1)[0]))
    out, err = demo.communicate(timeout=180)
    assert demo.returncode == 0, err
    said = json.loads(out)
    assert said["deviations"] == []
    assert (said["candidates"], said["held"], said["not_enforced"]) == (180, 10, 6)
    assert said["objects_listed"] == 586


def test_it_serves_until_it_is_interrupted_and_then_stops_everything(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    demo = start(tmp_path / "d", "--port", str(port))
    try:
        wait_for_line(demo, "Ready")
        with urllib.request.urlopen(f"http://localhost:{port}/admin/login/", timeout=20) as page:
            assert "Cleanup" in page.read().decode()
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=60)
        assert demo.returncode == 0
        with pytest.raises(OSError):  # noqa: PT011 - refused, by whatever name
            urllib.request.urlopen(f"http://localhost:{port}/admin/login/", timeout=5)
        until = time.monotonic() + 20
        while (tmp_path / "d" / "cluster" / "postmaster.pid").exists() and time.monotonic() < until:
            time.sleep(0.1)
        assert not (tmp_path / "d" / "cluster" / "postmaster.pid").exists()
    finally:
        with suppress(ProcessLookupError):
            demo.kill()
        demo.communicate()


@pytest.mark.django_db
def test_the_check_says_what_the_bucket_does_not_have(bucket: Bucket) -> None:
    version(bucket, None, "ghost")
    played = Played(scene=None, objects=[], expected_listing=3, runs=[])  # type: ignore[arg-type]
    said = list(check.catalogue_deviations(played, {}))
    assert said[0] == "The store shows 0 versions, but 3 were made."
    assert "in the catalogue alone" in said[1]
