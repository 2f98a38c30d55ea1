"""An object store in a folder: one file for each version, so that several processes work on the same objects."""

import os
import time
from collections.abc import Callable, Collection
from hashlib import md5
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

from retention.storage import (
    STOPPED_CODE,
    BucketRef,
    DeleteOutcome,
    Failure,
    FailureClass,
    Inspection,
    Presence,
    VersionRef,
)


class FolderStore:
    """`requests`: the time and number of keys of every request that was sent, by whichever process.

    `between(n)` is called within a request, when n of its versions are gone.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.log = root, root.with_suffix(".log")
        self.between: Callable[[int], object] = lambda gone: None
        root.mkdir()
        self.log.touch()

    def __call__(self, bucket: BucketRef) -> "FolderStore":
        """As `drain` takes it."""
        return self

    def put(self, bucket: BucketRef, key: str, body: bytes = b"x") -> VersionRef:
        name = VersionRef(key, uuid4().hex)
        self.path(bucket, name).write_bytes(body)
        return name

    def inspect(
        self, bucket: BucketRef, refs: Collection[VersionRef], *, deadline_seconds: float = 60.0
    ) -> dict[VersionRef, Inspection]:
        return {ref: self.look(self.path(bucket, ref)) for ref in refs}

    def look(self, path: Path) -> Inspection:
        if not path.exists():
            return Inspection(Presence.GONE)
        body = path.read_bytes()
        return Inspection(Presence.PRESENT, md5(body, usedforsecurity=False).hexdigest(), len(body))

    def delete_versions(
        self,
        bucket: BucketRef,
        refs: Collection[VersionRef],
        *,
        deadline_seconds: float,
        proceed: Callable[[], bool] = lambda: True,
    ) -> dict[VersionRef, DeleteOutcome]:
        if not proceed():
            stopped = Failure.of(FailureClass.TRANSIENT, STOPPED_CODE, "not sent: no longer allowed")
            return {ref: DeleteOutcome.failed(stopped, sent=False) for ref in refs}
        with self.log.open("a") as log:
            log.write(f"{time.time()} {len(refs)} {os.getpid()}\n")
        self.between(0)
        for gone, ref in enumerate(refs, 1):
            self.path(bucket, ref).unlink(missing_ok=True)
            self.between(gone)
        return {ref: DeleteOutcome.acknowledge() for ref in refs}

    def requests(self) -> list[tuple[float, int]]:
        lines = (line.split() for line in self.log.read_text().splitlines())
        return [(float(at), int(keys)) for at, keys, _pid in lines]

    def path(self, bucket: BucketRef, ref: VersionRef) -> Path:
        return self.root / f"{bucket.name}!{quote(ref.key, safe='')}!{ref.version_id}"
