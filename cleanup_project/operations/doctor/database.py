"""The one database: who we are there, what could get past the guards, and what ends a wait.

Sources: PostgreSQL's documentation, chapters "Client Connection Defaults", "pg_trigger", "pg_db_role_setting";
PgBouncer's, "Features" (what transaction pooling breaks).
"""

import os
from collections.abc import Iterator
from typing import Any, Final

import psycopg
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from cleanup_project import gunicorn
from cleanup_project.base import display
from cleanup_project.base.models import Heartbeat
from cleanup_project.operations import grants
from cleanup_project.operations.doctor.findings import Finding, fault, ok, warning

LOCAL: Final = frozenset({"", "localhost", "127.0.0.1", "::1"})
OVERHEAD: Final = 3  # connections of a cluster besides its workers': pusher, monitor, sentinel
WEB_POOL: Final = 8  # DATABASE_POOL_SIZE, where it is not set
BUSY: Final = 0.8
WRITE_AGAIN: Final = (
    "Set it back as the migrations made it: ALTER TABLE … ENABLE ALWAYS TRIGGER …, and find out who changed it."
)


def rows(statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters or None)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def answers() -> Finding:
    """Whether the database can be used at all: without it, nothing else is known."""
    subject = "database"
    try:
        ((version, name, user),) = rows("SELECT current_setting('server_version'), current_database(), current_user")
    except DatabaseError as error:
        advice = "Start PostgreSQL, let this host in, or correct DATABASE_URL. Nothing that stands in the database was asked."
        return fault(subject, f"It does not answer: {' '.join(str(error).split())}", advice)
    return ok(subject, f"PostgreSQL {version} answers, database {name}, as {user}.")


def role() -> Iterator[Finding]:
    """Whether the role of this process could get past the guards of the record, or somebody switched them off."""
    subject = "database role"
    ((user, superuser),) = rows("SELECT rolname, rolsuper FROM pg_roles WHERE rolname = current_user")
    guarded = rows(
        "SELECT c.relname, t.tgname, t.tgenabled = 'A', has_table_privilege(c.oid, 'TRUNCATE')"
        " FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
        " WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace ORDER BY 1, 2"
    )
    off = [f"{trigger} of {table}" for table, trigger, is_on, _ in guarded if not is_on]
    if not guarded:
        yield fault(
            subject, "No guard of the record is there.", "Run `manage.py migrate`, as the role that owns the tables."
        )
        return
    if off:
        yield fault(subject, f"Guards of the record do not always fire: {', '.join(off)}.", WRITE_AGAIN)
    emptied = {table for table, _, _, may in guarded if may}
    advice = (
        "Let web and workers use roles of their own (docs/deploy/roles.sql), and the owner run `manage.py migrate` and "
        "`manage.py grants` alone."
    )
    if superuser:
        yield fault(subject, f"{user} is a superuser: no guard of the record holds against it.", advice)
    elif why := grants.boundless(user):
        yield warning(subject, f"{user} {why}: whatever it is granted limits nothing.", advice)
    elif emptied:
        words = f"{user} may TRUNCATE {len(emptied)} guarded tables, {sorted(emptied)[0]} among them."
        yield warning(subject, words, f"REVOKE TRUNCATE ON ALL TABLES IN SCHEMA public FROM {user}.")
    elif not off:
        yield ok(subject, f"{user} owns none of the guarded tables; all {len(guarded)} guards fire.")


def durability() -> Iterator[Finding]:
    """What the server must not have switched off; `synchronous_commit` is a system check."""
    subject = "database server"
    off = [name for name in ("fsync", "full_page_writes", "autovacuum") if setting(name) == "off"]
    for name in off:
        words = {"autovacuum": "dead rows pile up, and every look at the queue becomes slow"}
        why = words.get(name, "a power cut could lose evidence that was committed")
        yield fault(subject, f"{name} is off: {why}.", f"Set {name} = on in postgresql.conf, and reload.")
    if not off:
        yield ok(subject, "fsync, full_page_writes and autovacuum are on.")


def waits() -> Iterator[Finding]:
    """Whether a wait for a lock, an idle transaction and a statement of the web process end by themselves."""
    subject = "database timeouts"
    endless = [name for name in ("lock_timeout", "idle_in_transaction_session_timeout") if setting(name) == "0"]
    if endless:
        advice = (
            "The settings ask for both at every connection, so something on the way drops it: ALTER ROLE … SET lock_timeout "
            "= '5s', ALTER ROLE … SET idle_in_transaction_session_timeout = '60s'."
        )
        yield fault(subject, f"{' and '.join(endless)} would never end a wait.", advice)
    limited = rows(
        "SELECT coalesce(r.rolname, 'every role') FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid = s.setrole,"
        " unnest(s.setconfig) AS given WHERE given LIKE 'statement_timeout=%' AND given ~ '[1-9]'"
        " AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database())) ORDER BY 1"
    )
    own = setting("statement_timeout")
    if own == "0" and not limited:
        advice = "Give the web process a role of its own, and that role ALTER ROLE … SET statement_timeout = '30s'."
        yield warning(subject, "No role has a statement_timeout: one page could keep a connection for ever.", advice)
    elif not endless:
        whom = ", ".join(sorted({name for (name,) in limited})) or "this role"
        words = f"A lock is waited for {setting('lock_timeout')}, statement_timeout of this role is {own}"
        yield ok(subject, f"{words}; set for {whom}.")


def setting(name: str) -> str:
    ((value,),) = rows("SELECT current_setting(%s)", name)
    return str(value)


def pooler() -> Iterator[Finding]:
    """Whether what answers is PostgreSQL itself: locks of a session are no locks where a pooler shares it out.

    A pooler makes up the process id that it greets with. Where two connections that are open at once are served by one
    process, it shares sessions out by the transaction.
    """
    subject = "connection pooler"
    ((pid,),) = rows("SELECT pg_backend_pid()")
    if greeting() == pid:
        yield ok(subject, "None: the connection leads to PostgreSQL itself.")
        return
    advice = (
        "Set pool_mode = session there, or let DATABASE_URL lead past it: workers hold advisory locks of a session."
    )
    if second_pid() == pid:
        yield fault(subject, "A pooler shares sessions out by the transaction.", advice)
    else:
        yield warning(subject, "A pooler stands in between, and its mode cannot be seen from here.", advice)


def greeting() -> int:
    """The process id that this connection was greeted with."""
    connection.ensure_connection()
    return int(connection.connection.info.backend_pid)


def second_pid() -> int:
    """Of the process that serves another connection, while the first is open and idle."""
    parameters = connection.get_connection_params()
    kept = {name: value for name, value in parameters.items() if name not in {"context", "cursor_factory", "pool"}}
    with psycopg.connect(**kept, autocommit=True) as other:
        found = other.execute("SELECT pg_backend_pid()").fetchone()
        assert found is not None
        return int(found[0])


def encryption() -> Iterator[Finding]:
    """Whether others could listen on the way to the database."""
    host = str(connection.settings_dict["HOST"])
    ((encrypted,),) = rows("SELECT coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false)")
    subject = "database connection"
    if encrypted:
        yield ok(subject, f"Encrypted, to {host}.")
    elif host in LOCAL or host.startswith("/"):
        yield ok(subject, "On this machine.")
    else:
        advice = "Add ?sslmode=verify-full (and sslrootcert=…) to DATABASE_URL, unless the network is trusted."
        yield warning(subject, f"Not encrypted, to {host}.", advice)


def migrations() -> Iterator[Finding]:
    """Whether the tables are those of this code."""
    executor = MigrationExecutor(connection)
    pending = [migration for migration, _ in executor.migration_plan(executor.loader.graph.leaf_nodes())]
    if pending:
        words = f"{display.count(pending, 'migration')} not applied, the first is {pending[0]}."
        yield fault("migrations", words, "Run `manage.py migrate`, as the role that owns the tables.")
    else:
        yield ok("migrations", "All applied.")


def connections() -> Iterator[Finding]:
    """Whether the server has room for what this installation opens at the most."""
    subject = "database connections"
    most, used, of_role, of_database = room()
    limit = min(each for each in (most, of_role, of_database) if each >= 0)
    web, worker = int(os.environ.get("WEB_CONCURRENCY") or gunicorn.PROCESSES), per_machine()
    machines = Heartbeat.objects.filter(stopped_at=None).values("host").distinct().count() or 1
    needed = web * int(os.environ.get("DATABASE_POOL_SIZE") or WEB_POOL) + machines * worker
    seen = (
        f"{limit} are allowed, {used} of the server's are in use; {display.counted(web, 'web process', 'web processes')} and "
        f"workers on {display.counted(machines, 'machine')} ({worker} each) open {needed} at the most."
    )
    advice = "Raise max_connections (or the limit of the role or database), or lower DATABASE_POOL_SIZE or WORKERS."
    if needed > limit or used >= most:
        yield fault(subject, seen, advice)
    elif needed > BUSY * limit or used > BUSY * most:
        yield warning(subject, seen, advice)
    else:
        yield ok(subject, seen)


def room() -> tuple[int, int, int, int]:
    """(connections that the server gives to ordinary roles, in use, limit of the role, of the database; -1: none)."""
    ((most, used, of_role, of_database),) = rows(
        "SELECT (SELECT max(setting::int) FILTER (WHERE name = 'max_connections')"
        " - coalesce(sum(setting::int) FILTER (WHERE name <> 'max_connections'), 0) FROM pg_settings"
        " WHERE name IN ('max_connections', 'superuser_reserved_connections', 'reserved_connections')),"
        " (SELECT sum(numbackends) FROM pg_stat_database),"
        " (SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user),"
        " (SELECT datconnlimit FROM pg_database WHERE datname = current_database())"
    )
    return int(most), int(used), int(of_role), int(of_database)


def per_machine() -> int:
    """Connections of one `manage.py worker`, its supervisor's included."""
    clusters = [settings.Q_CLUSTER, *([] if settings.ONE_CLUSTER else settings.Q_CLUSTER["ALT_CLUSTERS"].values())]
    return 1 + sum(int(each["workers"]) + OVERHEAD for each in clusters)
