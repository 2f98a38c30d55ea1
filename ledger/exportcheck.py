"""Check an export of receipts: `python exportcheck.py DIRECTORY`, with the standard library of Python 3.9 or later alone.

It reads every manifest (export-N.json) in the directory and the files that it names beside it: whether their bytes, rows and
SHA-256 are what the manifest says, whether rows are in order and none comes twice, and, where a row carries its document,
whether the document has the digest that the row states and is about the same command. It needs nothing from whoever made
the export, and little memory.
"""

import csv
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

PIECE = 1 << 20
SHOWN = 20  # findings of one file, at most
LONGEST = 1 << 30  # characters of a cell: a document names every object version


def check(directory: Path) -> list[str]:
    """What is wrong with the exports in a directory, in sentences; nothing: all is as their manifests say."""
    manifests = sorted(directory.glob("export-*.json"))
    if not manifests:
        return [f"There is no manifest (export-N.json) in {directory}."]
    return [finding for manifest in manifests for finding in check_export(manifest)]


def check_export(path: Path) -> Iterator[str]:
    told = json.loads(path.read_text(encoding="utf-8"))
    parts = told["parts"]
    root = hashlib.sha256(b"".join(bytes.fromhex(part["sha256"]) for part in parts)).hexdigest()
    if root != told["sha256_of_parts"]:
        yield f"{path.name}: sha256_of_parts is not the SHA-256 over those of its parts."
    for name in ("receipts", "bytes"):
        if sum(part[name] for part in parts) != told[name]:
            yield f"{path.name}: the {name} of its parts do not add up to {told[name]}."
    last = ("", 0)
    for part in parts:
        file = path.parent / part["file"]
        if not file.is_file():
            yield f"{part['file']}: it is not in the directory."
            continue
        yield from check_bytes(file, part)
        seen = Seen(last, list(told["columns"]))
        yield from cut(seen.findings(file))
        last = seen.last
        for name, found in (
            ("receipts", seen.rows),
            ("first_receipt", seen.first),
            ("last_receipt", seen.last[1] or None),
        ):
            if (seen.rows or name == "receipts") and found != part[name]:
                yield f"{file.name}: {name} is {found}, and the manifest says {part[name]}."


def check_bytes(file: Path, part: dict[str, Any]) -> Iterator[str]:
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as content:
        while piece := content.read(PIECE):
            digest.update(piece)
            size += len(piece)
    if size != part["bytes"]:
        yield f"{file.name}: it has {size} bytes, and the manifest says {part['bytes']}."
    if digest.hexdigest() != part["sha256"]:
        yield f"{file.name}: its SHA-256 is {digest.hexdigest()}, and the manifest says {part['sha256']}."


def reader(lines: Iterable[str]) -> "csv.DictReader[str]":
    """The rows of a file, however long their documents are. Python's limit is one for the whole process."""
    csv.field_size_limit(LONGEST)
    return csv.DictReader(lines, strict=True)


class Seen:
    """What was read of a file. `last`: time and number of the last receipt, which the next must come after."""

    def __init__(self, last: tuple[str, int], columns: list[str]) -> None:
        self.last, self.columns = last, columns
        self.rows = 0
        self.first = 0

    def findings(self, file: Path) -> Iterator[str]:
        try:
            with file.open(encoding="utf-8", newline="") as content:
                rows = reader(content)
                if rows.fieldnames != self.columns:
                    yield f"{file.name}: its columns are not those of the manifest."
                    return
                for row in rows:
                    for finding in self.judged(row):
                        yield f"{file.name}, receipt {row['receipt']}: {finding}"
        except (csv.Error, ValueError, KeyError, TypeError) as error:
            yield f"{file.name}: it cannot be read after {self.rows:,} receipts: {error!r}."

    def judged(self, row: dict[str, str]) -> Iterator[str]:
        place = (row["issued_at"], int(row["receipt"]))
        if place <= self.last:
            yield "it does not come after the one before it."
        self.rows, self.first, self.last = self.rows + 1, self.first or place[1], place
        if "body" not in row:
            return
        if hashlib.sha256(row["body"].encode()).hexdigest() != row["sha256"]:
            yield "its document has another SHA-256 than the row states."
            return
        document = json.loads(row["body"])
        for name in ("command_key", "event_id", "outcome", "issued_at", "tenant"):
            if document[name] != row[name]:
                yield f"the {name} of its document is another than the row's."
        if document["targets"][0]["commitment"] != row["commitment"]:
            yield "the commitment of its document is another than the row's."


def cut(findings: Iterator[str]) -> Iterator[str]:
    """No more than a person reads; the rest is counted."""
    number = 0
    for number, finding in enumerate(findings, start=1):
        if number <= SHOWN:
            yield finding
    if number > SHOWN:
        yield f"and {number - SHOWN:,} more such findings."


def main() -> int:
    if len(sys.argv) != 2:
        sys.stdout.write(__doc__)
        return 2
    findings = check(Path(sys.argv[1]))
    sys.stdout.writelines(f"{finding}\n" for finding in findings or ["All is as the manifests say."])
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
