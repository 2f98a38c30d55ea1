"""Databases beside the test's own: dumped, restored and granted with the tools and the files that docs/ name."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.db import connection, connections

from cleanup_project.base import postgres_host

ROLES = Path("docs/deploy/roles.sql")


def tool(name: str, *arguments: str, **environment: str) -> str:
    """Run a tool of PostgreSQL at the test's server, of the server's own version; returns what it printed."""
    at = connection.settings_dict
    binary = postgres_host.find_binaries() / name if settings.EMBEDDED_DATABASE else shutil.which(name)
    place = {"PGHOST": at["HOST"], "PGPORT": str(at["PORT"]), "PGUSER": at["USER"], "PGPASSWORD": at["PASSWORD"]}
    done = subprocess.run(
        [str(binary), *arguments], env=os.environ | place | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def dump(folder: Path) -> Path:
    """The test's database as docs/backup.md has it saved."""
    file = folder / "cleanup.dump"
    tool("pg_dump", "--format=custom", f"--file={file}", str(connection.settings_dict["NAME"]))
    return file


@contextmanager
def restored(file: Path, name: str, *, owner: str = "") -> Iterator[str]:
    """A new database with what was saved, as docs/backup.md has it restored; its name."""
    owner = owner or str(connection.settings_dict["USER"])
    tool("createdb", f"--owner={owner}", name)
    try:
        how = ("--no-owner", "--no-privileges", "--single-transaction", "--exit-on-error")
        tool("pg_restore", *how, f"--role={owner}", f"--dbname={name}", str(file))
        yield name
    finally:
        tool("dropdb", "--force", name)


@contextmanager
def copied(template: str, name: str, *, owner: str) -> Iterator[str]:
    """A new database like one that nobody is connected to; its name."""
    tool("createdb", f"--template={template}", f"--owner={owner}", name)
    try:
        yield name
    finally:
        tool("dropdb", "--force", name)


@contextmanager
def connected(name: str, user: str = "") -> Iterator[None]:
    """Let Django's connection be one to that database, as that role: a session of its own, not SET ROLE.

    The test's own connection, and the transaction that it is in, is left as it was.
    """
    kept = connections["default"]
    other = connections["default"] = kept.copy()
    other.settings_dict = dict(kept.settings_dict) | {"NAME": name, "USER": user or kept.settings_dict["USER"]}
    try:
        yield
    finally:
        other.close()
        connections["default"] = kept
