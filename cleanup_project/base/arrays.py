"""Long lists on their way to PostgreSQL: psycopg looks at each element of an array anew, which costs more than the query."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.db.backends.utils import CursorWrapper


def array(values: Iterable[int | str]) -> str:
    """Numbers, or words without quotes, commas, braces, backslashes and blanks, as PostgreSQL reads an array."""
    return f"{{{','.join(map(str, values))}}}"


def copy_in(cursor: CursorWrapper, table: str, types: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> None:
    """COPY rows into a table, in binary: `types` names its columns in their order, and the exact type of each.

    What is beyond an int4 is cut to one, without an error: give it small numbers.
    """
    with cursor.copy(f"COPY {table} ({', '.join(types)}) FROM STDIN (FORMAT binary)") as copy:
        copy.set_types(list(types.values()))
        for row in rows:
            copy.write_row(row)
