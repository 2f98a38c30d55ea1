"""Cells of CSV files that people open in a spreadsheet, which would run some of them as formulas."""

import sys
import unicodedata
from functools import cache
from itertools import groupby
from typing import Final

QUOTE: Final = "'"
UNSEEN: Final = "unseen"
SIGN: Final = "sign"
OTHER: Final = "other"


def guarded(cell: str) -> str:
    """The cell with a leading ' where a spreadsheet could take it for a formula; the first ' is always the guard's.

    Blanks and invisible characters before the sign do not help it, nor do full-width and other forms of the signs.
    """
    if not cell or cell[0].isalnum():
        return cell  # most cells
    if cell[0] in "'\t\r\n":
        return f"'{cell}"
    for character in cell:
        if unicodedata.category(character)[0] not in "ZC":
            return f"'{cell}" if unicodedata.normalize("NFKC", character)[0] in "=+-@" else cell
    return cell


def unguarded(cell: str) -> str:
    return cell


@cache
def formula_like() -> str:
    """A regular expression of PostgreSQL's that finds the cells which `guarded` marks, for `guarded_sql`."""
    known = map(kind, range(1, sys.maxunicode + 1))  # PostgreSQL's text holds no NUL
    found = dict[str, list[str]]()
    first = 1
    for what, points in groupby(known):
        last = first + sum(1 for _ in points) - 1
        found.setdefault(what, []).append(f"\\U{first:08x}-\\U{last:08x}")
        first = last + 1
    return f"^(['\\u0009\\u000A\\u000D]|[{''.join(found[UNSEEN])}]*[{''.join(found[SIGN])}])"


def kind(point: int) -> str:
    """What a code point is for `guarded`; surrogates are no characters and do not occur."""
    category = unicodedata.category(chr(point))
    if category == "Cs":
        return OTHER
    if category[0] in "ZC":
        return UNSEEN
    return SIGN if unicodedata.normalize("NFKC", chr(point))[0] in "=+-@" else OTHER


def guarded_sql(cell: str) -> str:
    """What `guarded` does, as an SQL expression over the expression `cell`, which is text."""
    harmless = f"ascii({cell}) BETWEEN 97 AND 122 OR ascii({cell}) BETWEEN 48 AND 57 OR ascii({cell}) BETWEEN 65 AND 90"
    pattern = formula_like().replace(QUOTE, QUOTE * 2)
    return f"CASE WHEN {harmless} THEN {cell} WHEN {cell} ~ '{pattern}' THEN {QUOTE * 4} || {cell} ELSE {cell} END"
