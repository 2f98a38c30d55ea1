"""`manage.py worker` as a real process on the test's database, and the processes of its clusters as the kernel sees them."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlencode

from django.conf import settings
from django.db import connection

PATIENCE = 90.0  # seconds; what is waited for comes much earlier


def database_url() -> str:
    """The test's database, as other processes name it."""
    at = connection.settings_dict
    who = quote(at["USER"]) + (f":{quote(at['PASSWORD'])}" if at["PASSWORD"] else "")
    return f"postgresql://{who}@/{at['NAME']}?{urlencode({'host': at['HOST'], 'port': at['PORT']})}"


@contextmanager
def worker(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """The supervisor; killed, and with it its clusters, if the test does not end it. Its log is shown on a failure."""
    with tempfile.TemporaryFile() as log:
        # Neither a restart nor the next test compiles anything again.
        quick = {"PYTHONPYCACHEPREFIX": str(settings.BASE_DIR / ".data" / "bytecode"), "PYTHONDONTWRITEBYTECODE": ""}
        told = {"DATABASE_URL": database_url(), "LOG_JSON": "1", "LOG_LEVEL": "INFO"}
        process = subprocess.Popen(
            [sys.executable, "manage.py", "worker", *arguments],
            cwd=settings.BASE_DIR,
            env=os.environ | quick | told | environment,
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        finally:
            sessions = children(process.pid)
            process.kill()
            process.wait()
            until(lambda: not any(map(members, sessions)), "end of every cluster")
            log.seek(0)
            print(log.read().decode()[-8000:])  # noqa: T201 - pytest shows it where a test failed


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.1)


def members(session: int) -> list[int]:
    """The living processes of a session, in the order in which they were made."""
    return [pid for pid, _parent, its_session in processes() if its_session == session]


def children(parent: int) -> list[int]:
    return [pid for pid, its_parent, _session in processes() if its_parent == parent]


def processes() -> Iterator[tuple[int, int, int]]:
    """(pid, parent, session) of every process that is not a zombie, by pid."""
    for pid in sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        try:
            state, parent, _group, session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state not in "ZX":
            yield pid, int(parent), int(session)
