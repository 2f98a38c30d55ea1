"""Long lists on their way to PostgreSQL: psycopg looks at each element of a list anew, which costs more than the query."""

from collections.abc import Iterable


def array(values: Iterable[int | str]) -> str:
    """Numbers, or words without quotes, commas, braces, backslashes and blanks, as PostgreSQL reads an array."""
    return f"{{{','.join(map(str, values))}}}"
