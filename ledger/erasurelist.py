"""The list of an urgent erasure: CSV or JSONL, one object or one asset a line.

Columns (JSONL: names): either `bucket`, `key` and, if only one version is meant, `version_id`; or `asset`.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from ledger.exceptions import LedgerError

KNOWN: Final = frozenset({"bucket", "key", "version_id", "asset"})
MAX_LINES: Final = 100_000
TOLD: Final = 20  # bad lines that an answer names


class Named(NamedTuple):
    """What one line names: all present versions of a key (or one of them), or those of an asset (`bucket` is empty)."""

    line: int
    bucket: str
    name: str
    version_id: str

    def __str__(self) -> str:
        if not self.bucket:
            return f"asset {self.name}"
        return f"{self.bucket}/{self.name}" + (f" @ {self.version_id}" if self.version_id else "")


class BadList(LedgerError):
    """The list cannot be taken; says which lines are wrong and how."""

    def __init__(self, message: str) -> None:
        super().__init__(message, field="list")


def read(data: bytes, form: str) -> list[Named]:
    """Every line, or BadList with what is wrong with the first bad ones; nothing is guessed."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadList(f"The list is not UTF-8 (byte {error.start}): save it as UTF-8.") from error
    named, wrong = list[Named](), list[str]()
    for number, row in rows(text, form):
        found = line(number, row)
        if isinstance(found, Named):
            named.append(found)
        else:
            wrong.append(f"line {number}: {found}")
        if len(named) > MAX_LINES:
            raise BadList(f"The list has more than {MAX_LINES:,} lines: file it in several requests.")
    if wrong:
        raise BadList(told(wrong))
    if not named:
        raise BadList("The list names nothing.")
    return named


def told(wrong: list[str]) -> str:
    more = f"; and {len(wrong) - TOLD:,} more" if len(wrong) > TOLD else ""
    return "; ".join(wrong[:TOLD]) + more + "."


def rows(text: str, form: str) -> Iterator[tuple[int, Mapping[str, Any] | str]]:
    """(line, its values by name, or what is wrong with it)."""
    if form == "jsonl":
        for number, each in enumerate(text.split("\n"), start=1):
            if each.strip():
                yield number, from_json(each)
        return
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = next(reader, [])
        if set(header) - KNOWN or len(set(header)) < len(header):
            raise BadList(f"The first line must name columns out of {', '.join(sorted(KNOWN))}, each once.")
        for values in reader:
            if values:
                fits = len(values) == len(header)
                wrong = f"it has {len(values)} fields where the header has {len(header)}"
                yield reader.line_num, dict(zip(header, values, strict=True)) if fits else wrong
    except csv.Error as error:
        raise BadList(f"line {reader.line_num}: it is not CSV: {error}; check its quotes.") from error


def from_json(text: str) -> Mapping[str, Any] | str:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"it is not JSON: {error}"
    return row if isinstance(row, dict) else "it is no JSON object"


def line(number: int, row: Mapping[str, Any] | str) -> Named | str:
    """What a line names, or what is wrong with it."""
    if isinstance(row, str):
        return row
    unknown = sorted(set(row) - KNOWN)
    if unknown:
        return f"unknown names: {', '.join(unknown)}; known: {', '.join(sorted(KNOWN))}"
    values = {name: row.get(name) or "" for name in KNOWN}
    if not all(map(storable, values.values())):
        return "every value must be text without NUL and without lone surrogates"
    if values["asset"]:
        if values["bucket"] or values["key"] or values["version_id"]:
            return "it names an asset and an object: give one of them a line of its own"
        return Named(number, "", values["asset"], "")
    if not (values["bucket"] and values["key"]):
        return "it must name bucket and key, or an asset"
    return Named(number, values["bucket"], values["key"], values["version_id"])


def storable(value: Any) -> bool:
    """Whether PostgreSQL's text can hold it; JSON can write what UTF-8 cannot."""
    return isinstance(value, str) and "\x00" not in value and not any("\ud800" <= each <= "\udfff" for each in value)
