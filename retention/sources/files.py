"""CSV and JSONL files of object versions: row by row, each one a complete observation or a reason why it is none.

Columns (JSONL: names): key, version_id, etag, size (bytes), last_modified (ISO 8601 with zone). Optional: is_latest,
is_delete_marker, storage_class; and tenant (its code), asset, series, retention_class, role (original or derivative),
original_key, original_version_id, dated_at, which override what the bucket's key rule says. Empty means not stated.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from retention.exceptions import RetentionError
from retention.facts import SILENT, Observation, Stated
from retention.models import Role

REQUIRED: Final = ("key", "version_id", "etag", "size", "last_modified")
OBSERVED: Final = ("is_latest", "is_delete_marker", "storage_class")
STATED: Final = (
    "tenant",
    "asset",
    "series",
    "retention_class",
    "role",
    "original_key",
    "original_version_id",
    "dated_at",
)
KNOWN: Final = (*REQUIRED, *OBSERVED, *STATED)
FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}


class BadRow(ValueError):
    """A row that is no observation; the message says what to do."""


class Line(NamedTuple):
    """A row and where it stands: its observation, or why it has none."""

    where: str
    observation: Observation | None
    error: str = ""


def read_csv(path: Path, tenants: Mapping[str, int]) -> Iterator[Line]:
    """The rows of a CSV file with a header. Raises RetentionError where the header is wrong."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, strict=True)
        header = heading(reader)
        while True:
            where = f"line {reader.line_num + 1}"
            try:
                values = next(reader, None)
            except csv.Error as error:
                yield Line(where, None, f"it is not CSV: {error}; check its quotes")
                continue
            if values is None:
                return
            if values:
                yield line(where, from_csv, header, values, tenants)


def read_jsonl(path: Path, tenants: Mapping[str, int]) -> Iterator[Line]:
    """The rows of a file with one JSON object on each line."""
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as file:
        for number, text in enumerate(file, start=1):
            if text.strip():
                yield line(f"line {number}", from_json, text, tenants)


def line(where: str, make: Callable[..., Observation], *row: Any) -> Line:
    try:
        return Line(where, make(*row))
    except BadRow as error:
        return Line(where, None, str(error))


def heading(reader: Iterator[list[str]]) -> list[str]:
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise RetentionError(f"The first line is not CSV: {error}. Check its quotes.") from error
    check_columns(header)
    return header


def check_columns(header: list[str]) -> None:
    missing = [name for name in REQUIRED if name not in header]
    unknown = [name for name in header if name not in KNOWN]
    if missing:
        raise RetentionError(
            f"The first line must name the columns {', '.join(REQUIRED)}; missing: {', '.join(missing)}."
        )
    if unknown:
        raise RetentionError(f"Unknown columns: {', '.join(unknown)}. Known: {', '.join(KNOWN)}.")
    if len(set(header)) < len(header):
        raise RetentionError("The first line names a column twice.")


def from_csv(header: list[str], values: list[str], tenants: Mapping[str, int]) -> Observation:
    if len(values) != len(header):
        raise BadRow(f"it has {len(values)} fields where the header has {len(header)}")
    return observe(dict(zip(header, values, strict=True)), tenants)


def from_json(text: str, tenants: Mapping[str, int]) -> Observation:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRow(f"it is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise BadRow("it is no JSON object")
    unknown = [name for name in row if name not in KNOWN]
    if unknown:
        raise BadRow(f"unknown names: {', '.join(unknown)}; known: {', '.join(KNOWN)}")
    return observe({name: plain(name, value) for name, value in row.items()}, tenants)


def plain(name: str, value: Any) -> str:
    """A JSON value as the text that a CSV file would hold."""
    if value is None:
        return ""
    if name in ("is_latest", "is_delete_marker") and isinstance(value, bool):
        return str(value).lower()
    if name == "size" and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise BadRow(f"{name} must be a string, not {json.dumps(value)}")
    return value


def observe(row: Mapping[str, str], tenants: Mapping[str, int]) -> Observation:
    """A row of text as an observation. `tenants` are ids by code. Raises BadRow."""
    if missing := [name for name in REQUIRED if name not in row]:
        raise BadRow(f"it lacks {', '.join(missing)}")
    is_delete_marker = flag(row, "is_delete_marker") or False
    etag = row["etag"].strip('"')
    if not etag and not is_delete_marker:
        raise BadRow("the etag is empty, and without it the version cannot be told from another one")
    if not row["version_id"]:
        raise BadRow("the version id is empty: write null for an object that was stored without versioning")
    return Observation(
        key=row["key"],
        version_id=row["version_id"],
        etag=etag,
        size=0 if is_delete_marker and not row["size"] else size(row["size"]),
        stored_at=instant("last_modified", row["last_modified"]),
        is_latest=flag(row, "is_latest"),
        is_delete_marker=is_delete_marker,
        storage_class=row.get("storage_class", ""),
        stated=stated(row, tenants),
    )


def stated(row: Mapping[str, str], tenants: Mapping[str, int]) -> Stated:
    values = {name: row[name] for name in STATED if row.get(name)}
    if not values:
        return SILENT
    code, role, dated_at = values.pop("tenant", None), values.get("role"), values.pop("dated_at", None)
    if code is not None and code not in tenants:
        raise BadRow(f"there is no tenant {code!r}: add it first, or correct its code")
    if role is not None and role not in Role.values:
        raise BadRow(f"the role is {role!r}; it must be original or derivative")
    return Stated(
        tenant_id=tenants[code] if code is not None else None,
        dated_at=instant("dated_at", dated_at) if dated_at is not None else None,
        **values,
    )


def flag(row: Mapping[str, str], name: str) -> bool | None:
    text = row.get(name, "")
    if not text:
        return None
    if text.lower() not in FLAGS:
        raise BadRow(f"{name} is {text!r}; write true or false")
    return FLAGS[text.lower()]


def size(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise BadRow(f"the size is {text!r}; it must be a whole number of bytes, not negative")
    return int(text)


def instant(name: str, text: str) -> datetime:
    """An ISO 8601 date and time with its zone, in UTC. Raises BadRow."""
    example = "write it like 2024-05-01T12:00:00Z"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadRow(f"{name} is {text!r}, which is no date and time; {example}") from None
    if moment.tzinfo is None:
        raise BadRow(f"{name} is {text!r}, without a time zone; {example}")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise BadRow(f"{name} is {text!r}, out of range in UTC") from None
