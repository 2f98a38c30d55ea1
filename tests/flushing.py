"""How a test that commits leaves the database: every row gone but those that the migrations made.

Django truncates each table and sends `post_migrate` to make its rows again, which takes half a second here, and a third of
the suite are such tests. So what the migrations made is kept and copied back, and small tables are emptied by DELETE:
TRUNCATE makes new files for each of them and each of their indexes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import connection, transaction

SMALL = 256 * 1024  # bytes: above it rows that are gone would be in the way of plans

_kept: dict[str, bytes] = {}


def tables() -> list[str]:
    return [name for name in connection.introspection.table_names() if name != "django_migrations"]


def keep() -> None:
    """Remember the rows that there are now, which are the migrations'."""
    with connection.cursor() as cursor:
        for table in filled(cursor, tables()):
            with cursor.copy(f"COPY {table} TO STDOUT") as rows:
                _kept[table] = b"".join(rows)


def flush() -> None:
    """Bring every table back to what `keep` saw. Sequences go on."""
    # In one transaction: foreign keys are looked at when all is there.
    with transaction.atomic(), connection.cursor() as cursor:
        known = tables()
        cursor.execute("SELECT bool_or(pg_relation_size(t::regclass) > %s) FROM unnest(%s::text[]) t", [SMALL, known])
        if cursor.fetchone()[0]:
            with guards_lifted():
                cursor.execute(f"TRUNCATE {', '.join(known)}")
        else:
            delete(cursor, filled(cursor, known))
        for table, rows in _kept.items():
            with cursor.copy(f"COPY {table} FROM STDIN") as copy:
                copy.write(rows)


def filled(cursor: Any, known: Sequence[str]) -> list[str]:
    cursor.execute(" UNION ALL ".join(f"SELECT '{table}' WHERE EXISTS (SELECT FROM {table})" for table in known))
    return [table for (table,) in cursor.fetchall()]


def delete(cursor: Any, known: Sequence[str]) -> None:
    """Foreign keys and ordinary triggers rest meanwhile: the order does not matter, and no guard counts what goes."""
    with guards_lifted(known):
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("; ".join(f"DELETE FROM {table}" for table in known))
        cursor.execute("SET LOCAL session_replication_role = origin")


@contextmanager
def guards_lifted(known: Sequence[str] | None = None) -> Iterator[None]:
    """Disable the triggers of these tables, or of all, that refuse even this, and bring them back."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgrelid::regclass::text, quote_ident(tgname) FROM pg_trigger WHERE tgenabled = 'A' AND NOT tgisinternal"
        )
        guards = [(table, trigger) for table, trigger in cursor.fetchall() if known is None or table in known]
        alter(cursor, "ALTER TABLE {} DISABLE TRIGGER {}", guards)
    yield
    with connection.cursor() as cursor:
        alter(cursor, "ALTER TABLE {} ENABLE ALWAYS TRIGGER {}", guards)


def alter(cursor: Any, how: str, guards: Sequence[tuple[str, str]]) -> None:
    if guards:
        cursor.execute("; ".join(how.format(*guard) for guard in guards))
