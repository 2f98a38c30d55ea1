"""Cells of CSV files that people open in a spreadsheet, which would run some of them as formulas."""

import unicodedata


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
