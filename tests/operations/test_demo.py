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
from django.db import connection

from cleanup_project.operations.demo import check
from cleanup_project.operations.demo.stage import Played
from cleanup_project.operations.servers import free_ports
from tests.flushing import guards_lifted
from tests.ledger.acting import build


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
    watchdog = threading.Timer(240, demo.kill)
    watchdog.start()
    try:
        assert any(line.startswith(beginning) for line in demo.stdout)
    finally:
        watchdog.cancel()


def test_the_check_finds_the_main_job_done(tmp_path: Path) -> None:
    demo = start(tmp_path / "d", "--check", "--port", str(free_ports(1)[0]))
    out, err = demo.communicate(timeout=300)
    assert demo.returncode == 0, err
    said = json.loads(out)
    assert said["deviations"] == []
    assert (said["objects_listed"], said["candidates"], said["held"]) == (589, 185, 16)
    assert (said["deleted"], said["already_absent"], said["dead"]) == (
        146,
        1,
        {"malformed_version": 1, "permission": 3},
    )
    assert said["receipts"] == 147
    # Four entered quarantine, and one run closed, since there was a subscriber; before that a hold was placed, five runs
    # were opened, and four dry ones closed.
    assert (said["events"], said["deliveries_acknowledged"]) == (147 + 5 + 10, 147 + 5)
    assert said["duplicates_suppressed"] >= 1


def test_it_serves_until_it_is_interrupted_and_then_stops_everything(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    demo = start(tmp_path / "d", "--port", str(port))
    try:
        wait_for_line(demo, "Ready")
        with urllib.request.urlopen(f"http://localhost:{port}/admin/login/", timeout=20) as page:
            assert "Cleanup" in page.read().decode()
        demo.send_signal(signal.SIGINT)
        demo.communicate(timeout=120)
        assert demo.returncode == 0
        with pytest.raises(OSError):  # noqa: PT011 - refused, by whatever name
            urllib.request.urlopen(f"http://localhost:{port}/admin/login/", timeout=5)
        until = time.monotonic() + 60
        while (tmp_path / "d" / "cluster" / "postmaster.pid").exists() and time.monotonic() < until:
            time.sleep(0.1)
        assert not (tmp_path / "d" / "cluster" / "postmaster.pid").exists()
    finally:
        with suppress(ProcessLookupError):
            demo.kill()
        demo.communicate()


def test_the_check_says_what_the_listing_lacked(tmp_path: Path) -> None:
    played = Played(None, [], 0, 3, {}, [], tmp_path / "log")  # type: ignore[arg-type]
    assert list(check.expectation_deviations(played, [])) == ["The store showed 0 versions, but 3 were made."]


@pytest.mark.django_db(transaction=True)
def test_the_check_misses_a_receipt_and_a_notice() -> None:
    world = build()
    world.put("originals/1.mp4")
    world.run()
    world.subscribe()
    world.drain()
    assert list(check.receipt_deviations()) == []
    assert "The receiver took 0 events for new, of 1." in list(check.notice_deviations([]))
    with guards_lifted(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM ledger_receipt")
    assert list(check.receipt_deviations()) == ["1 commands succeeded, with 0 receipts and 1 events."]
