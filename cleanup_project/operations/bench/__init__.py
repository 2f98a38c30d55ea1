"""Benchmarks: each measures one promise as a ratio to a named baseline in the same run, in a database of its own."""

import os
import platform
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass, field
from typing import Any

from django.db import connection


@dataclass(frozen=True)
class Result:
    """What `bench NAME --json` prints."""

    name: str
    value: float
    unit: str
    baseline: str
    baseline_value: float
    ratio: float
    details: dict[str, Any] = field(default_factory=dict)
    machine: str = field(
        default_factory=lambda: f"{os.cpu_count()} × {platform.machine()}, {platform.python_version()}"
    )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        server_version = cursor.fetchone()[0]
    return {
        "cpus": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "postgresql": server_version,
    }


@contextmanager
def scratch_database() -> Iterator[None]:
    """A freshly migrated database of the same server, dropped afterwards."""
    before = connection.settings_dict["NAME"]
    connection.settings_dict["TEST"]["NAME"] = "bench_cleanup"
    with redirect_stdout(sys.stderr):  # Django tells of the cache's table, however quiet it is told to be
        connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        yield
    finally:
        connection.creation.destroy_test_db(before, verbosity=0)


def peak_memory_mb() -> float:
    """The largest resident size of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
