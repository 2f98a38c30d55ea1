"""SQL that lives in `.sql` files beside the code that runs it."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from django.db import connection
from django.db.migrations.operations.special import RunSQL


@cache
def read(package_file: str, name: str) -> LiteralString:
    """The text of `sql/<name>` beside the module `package_file` (its `__file__`)."""
    return (Path(package_file).resolve().parent / "sql" / name).read_text(encoding="utf-8")


def row(sql: LiteralString, parameters: Mapping[str, Any]) -> tuple[Any, ...]:
    """The one row of a statement that is planned once a connection: for long statements, whose planning takes as long.

    Django's own cursors never prepare; see `prepare_threshold` in the settings.
    """
    (found,) = rows(sql, parameters)
    return found


def rows(sql: LiteralString, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """All rows of such a statement; none, where it returns nothing."""
    connection.ensure_connection()
    with connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        cursor.execute(sql, parameters, prepare=True)
        return cursor.fetchall() if cursor.description else []


def run(package_file: str, name: str, *, undo: str) -> RunSQL:
    """A migration operation that runs `sql/<name>` of the application whose migration `package_file` is."""
    text = (Path(package_file).resolve().parents[1] / "sql" / name).read_text(encoding="utf-8")
    return RunSQL(text, undo)


def append_only(*tables: str) -> RunSQL:
    """A migration operation that makes tables refuse UPDATE, DELETE and TRUNCATE, whoever asks.

    A statement trigger that is ENABLE ALWAYS: a row trigger would let TRUNCATE and `session_replication_role` through.
    The owner of a table can still drop its trigger: it is a fence, not a proof.
    """
    forward = "".join(
        f"CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        "FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();"
        f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER append_only;"
        for table in tables
    )
    return RunSQL(forward, "".join(f"DROP TRIGGER append_only ON {table};" for table in tables))
