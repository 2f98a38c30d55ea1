"""The store behind the S3 API: AWS, and what speaks its protocol.

What differs between stores is measured, not configured: see the modules that this one puts together.
"""

import time
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from retention.storage import lifecycle
from retention.storage.answers import UNACCOUNTED
from retention.storage.client import Clients, Reply, Timeouts
from retention.storage.deletes import Deletion
from retention.storage.failures import Failure, FailureClass, StorageError
from retention.storage.inspecting import inspect, lock_state
from retention.storage.port import (
    BucketRef,
    BucketState,
    DeleteOutcome,
    Inspection,
    LifecycleRule,
    ListedVersion,
    ListPage,
    LockState,
    Standing,
    Versioning,
    VersionRef,
    check_refs,
)
from retention.storage.standing import standing

_VERSIONING: Final[dict[str | None, Versioning]] = {"Enabled": "enabled", "Suspended": "suspended", None: "unversioned"}


class S3Store:
    """An `ObjectStore` over boto3. One is enough for a process; threads and forked children may share it."""

    def __init__(self, timeouts: Timeouts | None = None, *, pool_size: int = 32) -> None:
        self._timeouts = timeouts or Timeouts()
        self._clients = Clients(self._timeouts, pool_size)

    def list_versions(
        self,
        bucket: BucketRef,
        *,
        prefix: str = "",
        key_marker: str | None = None,
        version_id_marker: str | None = None,
        max_keys: int = 1000,
    ) -> ListPage:
        """See `ObjectStore`. boto3 hands over versions and markers apart, so their order within a key is by time."""
        if version_id_marker is not None and key_marker is None:
            raise ValueError("a version marker needs a key marker")
        place = {"KeyMarker": key_marker, "VersionIdMarker": version_id_marker}
        requested_at = datetime.now(UTC)
        data = self._get(
            bucket,
            "list_object_versions",
            Prefix=prefix,
            MaxKeys=max_keys,
            **{name: value for name, value in place.items() if value is not None},
        ).data
        if "IsTruncated" not in data:
            raise StorageError(Failure.of(FailureClass.TRANSIENT, UNACCOUNTED, "the answer is no listing"))
        rows = [_version(item) for item in data.get("Versions", ())]
        rows += [_marker(item) for item in data.get("DeleteMarkers", ())]
        rows.sort(key=lambda row: (row.key.encode(), not row.is_latest, -row.last_modified.timestamp()))
        return ListPage(
            tuple(rows),
            data.get("NextKeyMarker") if data["IsTruncated"] else None,
            data.get("NextVersionIdMarker") if data["IsTruncated"] else None,
            requested_at,
        )

    def inspect(
        self, bucket: BucketRef, refs: Collection[VersionRef], *, deadline_seconds: float = 60.0
    ) -> dict[VersionRef, Inspection]:
        until = time.monotonic() + deadline_seconds
        return inspect(self._clients.asker(bucket), check_refs(refs), until)

    def delete_versions(
        self,
        bucket: BucketRef,
        refs: Collection[VersionRef],
        *,
        deadline_seconds: float,
        proceed: Callable[[], bool] = lambda: True,
    ) -> dict[VersionRef, DeleteOutcome]:
        until = time.monotonic() + deadline_seconds
        return Deletion(self._clients.asker(bucket), check_refs(refs), until, proceed).run()

    def lock_state(self, bucket: BucketRef, ref: VersionRef) -> LockState:
        check_refs([ref])
        return lock_state(self._clients.asker(bucket), ref, self._until())

    def bucket_state(self, bucket: BucketRef) -> BucketState:
        versioning = self._get(bucket, "get_bucket_versioning").data.get("Status")
        try:
            lock = self._get(bucket, "get_object_lock_configuration").data.get("ObjectLockConfiguration", {})
        except StorageError as error:
            # The first is how AWS says "no Object Lock"; the others come from stores that do not know it at all.
            if error.failure.code not in ("ObjectLockConfigurationNotFoundError", "NotImplemented", "MethodNotAllowed"):
                raise
            lock = {}
        return BucketState(_VERSIONING[versioning], lock.get("ObjectLockEnabled") == "Enabled")

    def lifecycle_rules(self, bucket: BucketRef) -> Sequence[LifecycleRule]:
        try:
            said = self._get(bucket, "get_bucket_lifecycle_configuration").data.get("Rules", ())
        except StorageError as error:
            # The first is how AWS says "none"; the others come from stores that have no lifecycle at all.
            if error.failure.code not in ("NoSuchLifecycleConfiguration", "NotImplemented", "MethodNotAllowed"):
                raise
            said = ()
        return [lifecycle.rule(each, position) for position, each in enumerate(said, 1)]

    def standing(self, bucket: BucketRef) -> Standing:
        return standing(self._clients.asker(bucket), self._until())

    def _get(self, bucket: BucketRef, operation: str, **params: Any) -> Reply:
        reply = self._clients.asker(bucket)(operation, self._until(), **params)
        if reply.failure is not None:
            raise StorageError(reply.failure)
        return reply

    def _until(self) -> float:
        return time.monotonic() + self._timeouts.call


def _version(item: dict[str, Any]) -> ListedVersion:
    return ListedVersion(
        key=item["Key"],
        version_id=item["VersionId"],
        etag=item.get("ETag", "").strip('"'),
        size=item["Size"],
        last_modified=item["LastModified"].astimezone(UTC),
        is_latest=item["IsLatest"],
        is_delete_marker=False,
        storage_class=item.get("StorageClass", "STANDARD"),
    )


def _marker(item: dict[str, Any]) -> ListedVersion:
    modified = item["LastModified"].astimezone(UTC)
    return ListedVersion(item["Key"], item["VersionId"], "", 0, modified, item["IsLatest"], True, "")
