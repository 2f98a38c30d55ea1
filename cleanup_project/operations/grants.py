"""What each database role may do. The owner of the tables, who migrates, says so after each migration.

The processes do not run as the owner: an owner may drop a trigger, and with it what keeps the evidence. What a trigger
refuses to everybody (`sqlfiles.append_only`) is granted to nobody, so the server says no twice.
"""

from collections.abc import Iterator
from typing import Any, Final

from django.db import connection, transaction
from psycopg import sql

WEB: Final = "web"
WORKER: Final = "worker"
COMPACTION: Final = "compaction"
ROLES: Final = {WEB: "cleanup_web", WORKER: "cleanup_worker", COMPACTION: "cleanup_compaction"}

# Who may do what is the product's, and changes with it: migrations write it, and no process does.
MIGRATED: Final = frozenset(
    {"auth_group", "auth_group_permissions", "auth_permission", "django_content_type", "django_migrations"}
)
# How people come in. Workers do not even read it.
SIGN_IN: Final = frozenset(
    {
        "account_emailaddress", "account_emailconfirmation", "base_session", "mfa_authenticator",
        "socialaccount_socialaccount", "socialaccount_socialapp", "socialaccount_socialtoken",
    }
)  # fmt: skip
# People and programs, and what only they decide: a worker that somebody has taken over makes no approver and no token,
# approves nothing, publishes nothing, and starts no clock.
PEOPLES: Final = frozenset(
    {
        "base_apitoken", "base_apiuse", "base_user", "base_user_groups", "base_user_user_permissions",
        "django_admin_log", "ledger_erasurerequest", "ledger_erasuretarget", "retention_enforcement",
        "retention_enforcementrequest", "retention_holdprefix", "retention_holdrelease", "retention_legalhold",
        "retention_policyrevision", "retention_retentionevent",
    }
)  # fmt: skip
# What only the work writes: a web process that somebody has taken over makes no manifest, issues no receipt and schedules no
# function.
WORKS: Final = frozenset(
    {
        "base_heartbeat", "base_rollup", "base_rollupmark", "base_rolluptotal", "django_q_schedule", "django_q_task",
        "ledger_attempt", "ledger_manifestitem", "ledger_manifestpart", "ledger_receipt", "ledger_receiptlocator",
        "ledger_request", "ledger_scheduleslot", "ledger_skippeditem",
    }
)  # fmt: skip
# What one side adds and the other changes. Messages: the web process rings, and only workers take them. Stop switches: a
# bucket's breaker presses one, and only people lift it.
ADDED: Final = {WEB: frozenset({"django_q_ormq"}), WORKER: frozenset({"retention_stopswitch"})}
# From which tables rows are deleted, and by whom. Everything else is kept.
DELETED: Final = {
    "base_cache": {WEB, WORKER},
    "base_heartbeat": {WORKER},
    "base_rollup": {WORKER},
    "base_user_groups": {WEB},
    "django_q_ormq": {WORKER},
    "django_q_schedule": {WORKER},
    "django_q_task": {WORKER},
    "retention_impactpreview": {WEB},
    "retention_policyrevision": {WEB},
    "webhooks_detailedbody": {WORKER},
} | {table: {WEB} for table in SIGN_IN}
# `manage.py compact` sums up and deletes; nobody else deletes evidence, and it does nothing else.
COMPACTS: Final = {
    "ledger_attempt": ["SELECT", "DELETE"],
    "ledger_cleanupcommand": ["SELECT", "UPDATE (compacted_at)"],
    "ledger_commandsummary": ["SELECT", "INSERT"],
    "ledger_commandtarget": ["SELECT", "DELETE"],
    "ledger_deadletter": ["SELECT", "UPDATE (key, version_id)"],
    "ledger_receipt": ["SELECT"],
    "ledger_receiptlocator": ["SELECT", "DELETE"],
    "ledger_request": ["SELECT", "DELETE"],
}
# A listing that changed much has the planner's figures counted anew. PostgreSQL 17 can let others than the owner do so;
# before, autovacuum does it later.
ANALYSED: Final = "retention_objectversion"
MAINTAIN_SINCE: Final = 170000

# Tables of ours, and whether a trigger of theirs refuses each UPDATE.
TABLES: Final = """
    SELECT c.relname, EXISTS (
        SELECT FROM pg_trigger t
        WHERE t.tgrelid = c.oid AND t.tgfoid = to_regproc('refuse_change') AND t.tgtype & 16 <> 0 AND t.tgtype & 1 = 0
    )
    FROM pg_class c
    WHERE c.relkind IN ('r', 'p') AND c.relnamespace = current_schema()::regnamespace AND pg_has_role(c.relowner, 'USAGE')
    ORDER BY c.relname
"""
# Why what a role is granted limits nothing, or NULL. A member of the owner may become it by SET ROLE, whether it inherits its
# rights or not, so USAGE would be the wrong question. Before PostgreSQL 16, who makes roles may give itself any of them.
BOUNDLESS: Final = """
    SELECT CASE
        WHEN r.rolsuper THEN 'is a superuser'
        WHEN EXISTS (
            SELECT FROM pg_class c
            WHERE c.relkind IN ('r', 'p') AND c.relnamespace = current_schema()::regnamespace
            AND pg_has_role(r.oid, c.relowner, 'MEMBER')
        ) THEN 'owns tables of the product, or may become who does'
        WHEN r.rolcreaterole THEN 'may make roles, and give itself others (CREATEROLE)'
        WHEN pg_has_role(r.oid, 'pg_write_all_data', 'MEMBER') THEN 'may write everything (pg_write_all_data)'
    END
    FROM pg_roles r WHERE r.rolname = %s
"""
# Whether the statements of a role have a limit of time. Zero is none, with any unit.
LIMITED: Final = """
    SELECT EXISTS (
        SELECT FROM pg_roles r JOIN pg_db_role_setting s ON s.setrole = r.oid CROSS JOIN unnest(s.setconfig) AS setting
        WHERE r.rolname = %s AND setting ~ '^statement_timeout=.*[1-9]'
        AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
    )
"""


class GrantsRefused(Exception):
    """Nothing was granted. The message says what to do."""


def grant(*, web: str, worker: str, compaction: str) -> int:
    """Let these roles do what their processes need, and nothing else; returns on how many tables.

    One transaction, so that a running process never meets a role without its rights. One name may stand for several.
    Raises GrantsRefused.
    """
    names = {WEB: web, WORKER: worker, COMPACTION: compaction}
    with transaction.atomic(), connection.cursor() as cursor:
        for part, name in names.items():
            refuse_unfit(part, name, limited=part == WEB and web not in {worker, compaction})
        cursor.execute(TABLES)
        tables: dict[str, bool] = dict(cursor.fetchall())
        if not tables:
            raise GrantsRefused(
                "The role of DATABASE_URL owns no tables here: run this, and manage.py migrate, as the owner."
            )
        for statement in statements(names, tables):
            cursor.execute(statement)
    return len(tables)


def refuse_unfit(part: str, name: str, *, limited: bool) -> None:
    option = f"--{part}-role"
    if not asked("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %s)", name):
        raise GrantsRefused(
            f"There is no role {name}: make it (docs/deploy/roles.sql), or name another one by {option}."
        )
    if why := boundless(name):
        raise GrantsRefused(f"{name} {why}: whatever it is granted limits nothing. Name another role by {option}.")
    if limited and not asked(LIMITED, name):
        raise GrantsRefused(
            f"{name} has no limit of time for a page. An administrator of the server runs: ALTER ROLE {name} SET "
            "statement_timeout = '30s'"
        )


def boundless(name: str) -> str | None:
    """What a role is or may do that makes what it is granted no limit ("is a superuser"); None where all is well."""
    why: str | None = asked(BOUNDLESS, name)
    return why


def asked(question: str, name: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(question, [name])
        (answer,) = cursor.fetchone()
    return answer


def statements(names: dict[str, str], tables: dict[str, bool]) -> Iterator[sql.Composed]:
    """All of it, from nothing: what was granted before is taken back first."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema(), current_database()")
        schema, database = map(sql.Identifier, cursor.fetchone())
    for role in map(sql.Identifier, sorted(set(names.values()))):
        yield sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA {} FROM {}").format(schema, role)
        yield sql.SQL("REVOKE ALL ON ALL SEQUENCES IN SCHEMA {} FROM {}").format(schema, role)
        # Temporary tables take a page of a listing, or a file that is imported.
        yield sql.SQL("GRANT CONNECT, TEMPORARY ON DATABASE {} TO {}").format(database, role)
        yield sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, role)
        yield sql.SQL("GRANT USAGE ON ALL SEQUENCES IN SCHEMA {} TO {}").format(schema, role)
    for table, frozen in tables.items():
        for part, name in names.items():
            if rights := may(part, table, frozen=frozen):
                yield sql.SQL("GRANT {} ON {}.{} TO {}").format(
                    sql.SQL(", ").join(map(sql.SQL, rights)), schema, sql.Identifier(table), sql.Identifier(name)
                )


def may(part: str, table: str, *, frozen: bool = False) -> list[str]:
    """The rights of a part of the product on a table. `frozen`: a trigger refuses each UPDATE of it."""
    if part == COMPACTION:
        return COMPACTS.get(table, [])
    if part == WORKER and table in SIGN_IN:
        return []
    rights = ["SELECT"]
    others = WORKS if part == WEB else PEOPLES
    if table not in MIGRATED | others:
        rights.append("INSERT")
        if not frozen and table not in ADDED[part]:
            rights.append("UPDATE")
    if part in DELETED.get(table, set()):
        rights.append("DELETE")
    if part == WORKER and table == ANALYSED and connection.pg_version >= MAINTAIN_SINCE:  # type: ignore[attr-defined]
        rights.append("MAINTAIN")
    return rights
