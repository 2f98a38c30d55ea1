"""Cells of CSV files that people open in a spreadsheet, which would run some of them as formulas."""

import sys
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import Final

QUOTE: Final = "'"


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
    unseen, signs = list[int](), list[int]()
    for point in range(1, sys.maxunicode + 1):  # PostgreSQL's text holds no NUL
        character = chr(point)
        if unicodedata.category(character)[0] in "ZC":
            unseen.append(point)
        elif unicodedata.normalize("NFKC", character)[0] in "=+-@":
            signs.append(point)
    return f"^(['\\u0009\\u000A\\u000D]|[{ranges(unseen)}]*[{ranges(signs)}])"


def ranges(points: Iterable[int]) -> str:
    """Ascending code points as the inside of a bracket expression; surrogates, which are no characters, left out."""
    found = list[list[int]]()
    for point in points:
        if 0xD800 <= point <= 0xDFFF:
            continue
        if found and found[-1][1] == point - 1:
            found[-1][1] = point
        else:
            found.append([point, point])
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in found)


def guarded_sql(cell: str) -> str:
    """What `guarded` does, as an SQL expression over the expression `cell`, which is text."""
    harmless = f"ascii({cell}) BETWEEN 97 AND 122 OR ascii({cell}) BETWEEN 48 AND 57 OR ascii({cell}) BETWEEN 65 AND 90"
    pattern = formula_like().replace(QUOTE, QUOTE * 2)
    return f"CASE WHEN {harmless} THEN {cell} WHEN {cell} ~ '{pattern}' THEN {QUOTE * 4} || {cell} ELSE {cell} END"
