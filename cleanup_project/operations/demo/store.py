"""Fills the demo's S3 server over plain HTTP, as some upstream system would, and lists it."""

import base64
import hashlib
import http.client
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from cleanup_project.operations.demo.dataset import LOCKED, MEDIA, Put
from cleanup_project.operations.servers import ACCESS_KEY, VERSIONED, ServerFailed, connected
from retention.buckets import ref
from retention.models import Bucket
from retention.storage import ListedVersion, store_for

Name = tuple[str, str, str]  # bucket, key, version id


def fill(endpoint_url: str, objects: Iterable[Put]) -> int:
    """Make the buckets and store every object; returns how many versions and delete markers a listing must show."""
    expected = 0
    until = (datetime.now(UTC) + timedelta(days=30)).strftime("%Y-%m-%dT%H:%M:%SZ")
    lock = {"x-amz-object-lock-mode": "COMPLIANCE", "x-amz-object-lock-retain-until-date": until}
    with connected(endpoint_url) as connection:
        send(connection, "PUT", f"/{MEDIA}")
        send(connection, "PUT", f"/{MEDIA}?versioning", VERSIONED)
        send(connection, "PUT", f"/{LOCKED}", headers={"x-amz-bucket-object-lock-enabled": "true"})
        for each in objects:
            path = f"/{each.bucket}/{quote(each.key)}"
            for version in range(each.versions):
                send(connection, "PUT", path, f"{each.key} take {version}".encode(), lock if each.locked else {})
                expected += 1
            if each.deleted:
                send(connection, "DELETE", path)
                expected += 1
    return expected


def send(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
) -> None:
    """One request that must succeed; the server checks nobody's signature, but a locked object's digest."""
    md5 = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
    given = {"Authorization": f"AWS {ACCESS_KEY}:unchecked", "Content-MD5": md5, **(headers or {})}
    connection.request(method, path, body, given)
    answer = connection.getresponse()
    text = answer.read()
    if answer.status not in {200, 204}:
        raise ServerFailed(f"{method} {path}: {answer.status} {text[:300].decode(errors='replace')}")


def listing(buckets: list[Bucket]) -> Iterator[tuple[Name, ListedVersion]]:
    """Every version and marker, straight from the store."""
    for bucket in buckets:
        store, place = store_for(ref(bucket)), ref(bucket)
        key_marker = version_id_marker = None
        while True:
            page = store.list_versions(place, key_marker=key_marker, version_id_marker=version_id_marker)
            for each in page.versions:
                yield (bucket.name, each.key, each.version_id), each
            key_marker, version_id_marker = page.next_key_marker, page.next_version_id_marker
            if key_marker is None:
                break
