"""`bench` on small worlds: it measures the real thing and leaves nothing behind."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

KEYS = {"name", "value", "unit", "baseline", "baseline_value", "ratio", "details", "machine"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each makes a database of its own; that of a server is made once."""
    return tmp_path_factory.mktemp("bench") / "d"


def bench(folder: Path, *arguments: str) -> dict[str, Any]:
    """Run a benchmark as its users do, on a database server of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    done = subprocess.run(
        [sys.executable, "manage.py", "bench", *arguments, "--json"],
        cwd=settings.BASE_DIR,
        env=environment | {"DATA_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert set(said) == KEYS
    assert said["value"] > 0
    return said


@pytest.mark.seaweed
def test_sync_is_compared_with_a_bare_listing(folder: Path) -> None:
    said = bench(folder, "sync", "--versions", "20")
    assert (said["name"], said["unit"], said["details"]["server"]) == ("sync", "versions/s", "seaweedfs")
    assert said["ratio"] == pytest.approx(said["value"] / said["baseline_value"], rel=0.2)


def test_the_ledger_is_compared_with_plain_sql_alone_and_side_by_side(folder: Path) -> None:
    said = bench(folder, "ledger", "--commands", "300", "--rounds", "2")
    details = said["details"]
    assert (said["name"], said["unit"], len(details["rounds"])) == ("ledger", "commands/s", 2)
    assert said["ratio"] == pytest.approx(said["value"] / said["baseline_value"], rel=0.05)
    beside = details["side_by_side"]
    assert beside["processes"] == 2
    assert beside["ratio"] == pytest.approx(beside["ours"] / beside["plain"], rel=0.05)


def test_freezing_is_compared_with_a_smaller_catalogue(folder: Path) -> None:
    said = bench(folder, "freeze", "--rows", "1000")
    small, large = said["details"]["small"], said["details"]["large"]
    assert (said["name"], small["items"], large["items"]) == ("freeze", large["items"], small["items"])
    assert said["ratio"] == pytest.approx(large["seconds"] / small["seconds"], rel=0.01)


def test_a_hold_is_compared_with_one_over_nothing_and_a_drain_runs_beside_it(folder: Path) -> None:
    said = bench(folder, "hold", "--objects", "300", "--commands", "100")
    assert (said["name"], said["unit"], said["details"]["objects"]) == ("hold", "ms", 300)
    assert said["ratio"] == pytest.approx(said["value"] / said["baseline_value"], rel=0.1)
    assert said["details"]["drain"]["marked"] == 100


def test_a_preview_is_compared_with_a_plain_count(folder: Path) -> None:
    said = bench(folder, "preview", "--rows", "2000")
    details = said["details"]
    assert (said["name"], details["exact"]) == ("preview", details["estimated"])  # the sample was the whole table
    assert details["estimate_ms"] > 0
    assert said["ratio"] == pytest.approx(said["baseline_value"] / said["value"], rel=0.05)


def test_the_dashboard_is_compared_with_an_empty_one(folder: Path) -> None:
    said = bench(folder, "dashboard", "--commands", "500", "--receipts", "100", "--looks", "3")
    details = said["details"]
    assert (said["name"], said["unit"]) == ("dashboard", "ms")
    assert (details["rows"]["receipts"], details["rows"]["deliveries"]) == (100, 500)
    assert set(details["fragment_ms"]) == {"1h", "24h", "7d", "30d"}
    assert said["ratio"] == pytest.approx(said["value"] / said["baseline_value"], rel=0.05)


def test_webhooks_are_compared_with_bare_requests(folder: Path) -> None:
    said = bench(folder, "webhooks", "--deliveries", "200", "--rounds", "1")
    details = said["details"]
    assert (said["name"], said["unit"], details["deliveries"]) == ("webhooks", "deliveries/s", 200)
    assert said["ratio"] == pytest.approx(said["value"] / said["baseline_value"], rel=0.05)
    dead = details["dead_endpoint"]
    assert (dead["due"], dead["others"]) == (400, 200)
    assert dead["with_to_without"] == pytest.approx(dead["p95_ms_with"] / dead["p95_ms_without"], rel=0.05)
    assert details["claim"]["due"] == 4000
    assert 0 < details["claim"]["claim_ms"]["median"] <= details["claim"]["claim_ms"]["max"]


def test_pages_are_timed_over_a_small_world_and_over_a_large_one(folder: Path) -> None:
    said = bench(folder, "pages", "--receipts", "2000", "--looks", "1")
    details = said["details"]
    assert (said["name"], said["unit"], details["rows"]["ledger.Receipt"]) == ("pages", "ms", 2700)
    assert said["value"] == max(details["pages_ms"].values())
    assert {"my-work", "dashboard", "ledger_receipt list", "ledger_cleanupcommand item"} <= details["pages_ms"].keys()


def test_an_export_is_compared_with_psql(folder: Path) -> None:
    said = bench(folder, "export", "--rows", "500")
    machines = said["details"]["forms"]["machines"]
    assert (said["name"], said["unit"], said["ratio"]) == ("export", "receipts/s", machines["ratio"])
    assert said["ratio"] == pytest.approx(said["value"] / said["baseline_value"], rel=0.05)
    assert machines["bytes"] > said["details"]["forms"]["people"]["bytes"] > 500 * 100
