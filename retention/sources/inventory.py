"""S3 Inventory as a source: a manifest and the compressed CSV files that it lists, each proved by its MD5.

Keys are URL-encoded as in a form: a space is `+`, a plus is `%2B`. A null version has an empty version id. Sources: AWS,
"Amazon S3 inventory list", "Locating your inventory list", "Converting empty version ID strings in Amazon S3 Inventory
reports to null strings".
"""

import csv
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import unquote_plus

from retention.exceptions import RetentionError
from retention.facts import NULL_VERSION, Observation
from retention.sources.files import BadRow, Line, line, observe

NEEDED: Final = ("Bucket", "Key", "VersionId", "IsLatest", "IsDeleteMarker", "Size", "LastModifiedDate", "ETag")
ASK_FOR: Final = (
    "Configure the inventory with all versions, in CSV, with size, last modified date, ETag and storage class."
)
BROKEN_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Inventory:
    """A manifest that was read and checked. `created_at`: when the inventory began; `files` exist and are whole."""

    source_bucket: str
    created_at: datetime
    schema: tuple[str, ...]
    files: tuple[Path, ...]


def read_manifest(path: Path) -> Inventory:
    """Read `manifest.json`, find its data files beside it, and verify them. Raises RetentionError."""
    text = path.read_bytes()
    checksum = path.with_name("manifest.checksum")
    if checksum.exists() and checksum.read_text().strip() != hashlib.md5(text, usedforsecurity=False).hexdigest():
        raise RetentionError(f"{path} does not match {checksum.name}: copy both again.")
    try:
        manifest: dict[str, Any] = json.loads(text)
        schema = tuple(name.strip() for name in manifest["fileSchema"].split(","))
        created_at = EPOCH + timedelta(milliseconds=int(manifest["creationTimestamp"]))
        listed = [(each["key"], each["MD5checksum"]) for each in manifest["files"]]
        source, kind = manifest["sourceBucket"], manifest["fileFormat"]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise RetentionError(f"{path} is no manifest of an S3 Inventory: {error!r}.") from error
    if kind != "CSV":
        raise RetentionError(f"The inventory is in {kind}, which cannot be read. {ASK_FOR}")
    if missing := [name for name in NEEDED if name not in schema]:
        raise RetentionError(f"The inventory lacks {', '.join(missing)}. {ASK_FOR}")
    return Inventory(source, created_at, schema, tuple(data_file(path.parent, *each) for each in listed))


def data_file(folder: Path, key: str, md5: str) -> Path:
    """The data file of that key: where the inventory's own layout has it, or in the folder of the manifest."""
    name = PurePosixPath(key).name
    places = [folder / name, folder / "data" / name, folder.parent / "data" / name]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        looked = ", ".join(str(place) for place in places)
        raise RetentionError(f"The data file {name} is missing; looked for {looked}.")
    with found.open("rb") as file:
        if hashlib.file_digest(file, "md5").hexdigest() != md5:
            raise RetentionError(f"{found} does not have the MD5 checksum that the manifest says: copy it again.")
    return found


def read_inventory(inventory: Inventory) -> Iterator[Line]:
    """The rows of all data files; they have no header."""
    for path in inventory.files:
        try:
            with gzip.open(path, "rt", encoding="utf-8", errors="surrogateescape", newline="") as file:
                reader = csv.reader(file)
                for values in reader:
                    yield line(f"{path.name} line {reader.line_num}", from_inventory, inventory, values)
        except (OSError, EOFError, zlib.error) as error:
            raise RetentionError(f"{path} cannot be unpacked: {error}.") from error


def from_inventory(inventory: Inventory, values: list[str]) -> Observation:
    """One row as an observation. Raises BadRow."""
    if len(values) != len(inventory.schema):
        raise BadRow(f"it has {len(values)} fields where the manifest's fileSchema has {len(inventory.schema)}")
    row = dict(zip(inventory.schema, values, strict=True))
    if row["Bucket"] != inventory.source_bucket:
        raise BadRow(f"it is about bucket {row['Bucket']!r}, the manifest about {inventory.source_bucket!r}")
    return observe(translated(row), {})


def translated(row: Mapping[str, str]) -> dict[str, str]:
    return {
        "key": decoded(row["Key"]),
        "version_id": row["VersionId"] or NULL_VERSION,
        "etag": row["ETag"],
        "size": row["Size"],
        "last_modified": row["LastModifiedDate"],
        "is_latest": row["IsLatest"],
        "is_delete_marker": row["IsDeleteMarker"],
        "storage_class": row.get("StorageClass", ""),
    }


def decoded(key: str) -> str:
    """The exact key behind its encoded form. Raises BadRow where there is none."""
    if BROKEN_ESCAPE.search(key):
        raise BadRow(f"the key {key!r} is not URL-encoded")
    try:
        return unquote_plus(key, errors="strict")
    except UnicodeDecodeError:
        raise BadRow(f"the key {key!r} does not encode UTF-8 text") from None
