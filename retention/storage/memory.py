"""An object store in memory, for tests: versions, null versions, delete markers, locks, and faults on demand."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import md5
from itertools import count, islice

from retention.storage.failures import Failure, FailureClass, StorageError
from retention.storage.port import (
    STOPPED_CODE,
    BucketRef,
    BucketState,
    DeleteOutcome,
    Inspection,
    LifecycleRule,
    ListedVersion,
    ListPage,
    LockMode,
    LockState,
    Presence,
    Standing,
    Versioning,
    VersionRef,
    check_refs,
)

Hook = Callable[[str, BucketRef, Collection[VersionRef]], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """What the next call of `operation` answers. For an inspection the failure makes an UNKNOWN.

    With `refs`, only those versions are affected. With `executed`, a deletion takes effect although it is reported as
    failed, as after a timeout.
    """

    operation: str
    failure: Failure
    refs: frozenset[VersionRef] | None = None
    executed: bool = False

    def covers(self, ref: VersionRef) -> bool:
        return self.refs is None or ref in self.refs


@dataclass(slots=True)
class _Object:
    serial: int
    version_id: str
    body: bytes | None  # None: a delete marker
    modified: datetime
    lock: LockState = field(default_factory=LockState)

    @property
    def etag(self) -> str:
        return "" if self.body is None else md5(self.body, usedforsecurity=False).hexdigest()


@dataclass(slots=True)
class _Bucket:
    versioning: Versioning
    object_lock: bool
    keys: dict[str, list[_Object]] = field(default_factory=dict)  # newest first
    lifecycle: Sequence[LifecycleRule] = ()
    serials: dict[VersionRef, int] = field(default_factory=dict)  # of every version there ever was

    def find(self, ref: VersionRef) -> _Object | None:
        return next((item for item in self.keys.get(ref.key, ()) if item.version_id == ref.version_id), None)

    def remove(self, ref: VersionRef) -> None:
        left = [item for item in self.keys.get(ref.key, ()) if item.version_id != ref.version_id]
        if left:
            self.keys[ref.key] = left
        else:
            self.keys.pop(ref.key, None)


class MemoryStore:
    """An `ObjectStore` with the semantics of S3. Not safe for threads.

    `before_call` runs before anything else of a call and may raise, as a dying process would; `calls` records each
    operation with its refs. `clock` gives the time of writes and decides whether a retention has ended.
    """

    def __init__(self, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.calls: list[tuple[str, tuple[VersionRef, ...]]] = []
        self.before_call: Hook | None = None
        self._clock = clock
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._faults: list[Fault] = []
        self._serial = count(1)

    # What a test does to the store.

    def create_bucket(
        self, bucket: BucketRef, *, versioning: Versioning = "enabled", object_lock: bool = False
    ) -> None:
        self._buckets[bucket.endpoint_url, bucket.name] = _Bucket(versioning, object_lock)

    def drop_bucket(self, bucket: BucketRef) -> None:
        del self._buckets[bucket.endpoint_url, bucket.name]

    def set_versioning(self, bucket: BucketRef, versioning: Versioning) -> None:
        self._bucket(bucket).versioning = versioning

    def set_lifecycle(self, bucket: BucketRef, *rules: LifecycleRule) -> None:
        """Rules are told to whoever asks, and never carried out."""
        self._bucket(bucket).lifecycle = rules

    def put(self, bucket: BucketRef, key: str, body: bytes = b"", *, modified: datetime | None = None) -> VersionRef:
        """Write a version and give its name; without versioning, that is 'null' and replaces the one before."""
        return self._write(bucket, key, body, modified)

    def put_marker(self, bucket: BucketRef, key: str) -> VersionRef:
        """Delete without a version id: a marker goes on top."""
        return self._write(bucket, key, None, None)

    def lock(
        self,
        bucket: BucketRef,
        ref: VersionRef,
        *,
        mode: LockMode | None = None,
        retain_until: datetime | None = None,
        legal_hold: bool = False,
    ) -> None:
        item = self._bucket(bucket).find(ref)
        if item is None:
            raise KeyError(ref)
        item.lock = LockState(mode, retain_until, legal_hold)

    def inject(self, fault: Fault, *, times: int = 1) -> None:
        self._faults.extend([fault] * times)

    # The port.

    def list_versions(
        self,
        bucket: BucketRef,
        *,
        prefix: str = "",
        key_marker: str | None = None,
        version_id_marker: str | None = None,
        max_keys: int = 1000,
    ) -> ListPage:
        if version_id_marker is not None and key_marker is None:
            raise ValueError("a version marker needs a key marker")
        requested_at = self._clock()
        kept = self._query("list_versions", bucket)
        rows = (row for row in _rows(kept, key_marker, version_id_marker) if row.key.startswith(prefix))
        page = tuple(islice(rows, max_keys))
        more = next(rows, None) is not None
        last = page[-1] if page and more else None
        return ListPage(page, last.key if last else None, last.version_id if last else None, requested_at)

    def inspect(
        self, bucket: BucketRef, refs: Collection[VersionRef], *, deadline_seconds: float = 60.0
    ) -> dict[VersionRef, Inspection]:
        fault = self._begin("inspect", bucket, check_refs(refs))
        kept = self._buckets.get((bucket.endpoint_url, bucket.name))
        seen: dict[VersionRef, Inspection] = {}
        for ref in refs:
            if fault is not None and fault.covers(ref):
                seen[ref] = Inspection(Presence.UNKNOWN, failure=fault.failure)
            elif kept is None:
                seen[ref] = Inspection(
                    Presence.UNKNOWN, failure=Failure.of(FailureClass.BUCKET_MISSING, "NoSuchBucket")
                )
            else:
                seen[ref] = _inspection(kept.find(ref))
        return seen

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
            return {ref: DeleteOutcome.failed(stopped, sent=False) for ref in check_refs(refs)}
        fault = self._begin("delete_versions", bucket, check_refs(refs))
        outcomes: dict[VersionRef, DeleteOutcome] = {}
        for ref in refs:
            if fault is not None and fault.covers(ref):
                if fault.executed:
                    self._delete(bucket, ref)
                outcomes[ref] = DeleteOutcome.failed(fault.failure, sent=True)
            else:
                outcomes[ref] = self._delete(bucket, ref)
        return outcomes

    def lock_state(self, bucket: BucketRef, ref: VersionRef) -> LockState:
        fault = self._begin("lock_state", bucket, check_refs([ref]))
        kept = self._buckets.get((bucket.endpoint_url, bucket.name))
        if fault is not None or kept is None:
            return LockState(unknown=True)
        item = kept.find(ref)
        return item.lock if item is not None else LockState()

    def bucket_state(self, bucket: BucketRef) -> BucketState:
        kept = self._query("bucket_state", bucket)
        return BucketState(kept.versioning, kept.object_lock)

    def lifecycle_rules(self, bucket: BucketRef) -> Sequence[LifecycleRule]:
        return self._query("lifecycle_rules", bucket).lifecycle

    def standing(self, bucket: BucketRef) -> Standing:
        """Nothing is said: who else may come in is not what this store knows."""
        self._query("standing", bucket)
        return Standing()

    def _begin(self, operation: str, bucket: BucketRef, refs: Collection[VersionRef]) -> Fault | None:
        if self.before_call is not None:
            self.before_call(operation, bucket, refs)
        self.calls.append((operation, tuple(refs)))
        fault = next((fault for fault in self._faults if fault.operation == operation), None)
        if fault is not None:
            self._faults.remove(fault)
        return fault

    def _query(self, operation: str, bucket: BucketRef) -> _Bucket:
        fault = self._begin(operation, bucket, ())
        if fault is not None:
            raise StorageError(fault.failure)
        return self._bucket(bucket)

    def _bucket(self, bucket: BucketRef) -> _Bucket:
        try:
            return self._buckets[bucket.endpoint_url, bucket.name]
        except KeyError:
            raise StorageError(Failure.of(FailureClass.BUCKET_MISSING, "NoSuchBucket")) from None

    def _write(self, bucket: BucketRef, key: str, body: bytes | None, modified: datetime | None) -> VersionRef:
        kept, serial = self._bucket(bucket), next(self._serial)
        ref = VersionRef(key, f"v{serial:08d}" if kept.versioning == "enabled" else "null")
        if ref.version_id == "null":
            kept.remove(ref)
        kept.serials[ref] = serial
        item = _Object(serial, ref.version_id, body, modified or self._clock())
        kept.keys[key] = [item, *kept.keys.get(key, ())]
        return ref

    def _delete(self, bucket: BucketRef, ref: VersionRef) -> DeleteOutcome:
        kept = self._buckets.get((bucket.endpoint_url, bucket.name))
        if kept is None:
            return DeleteOutcome.failed(Failure.of(FailureClass.BUCKET_MISSING, "NoSuchBucket"), sent=True)
        item = kept.find(ref)
        if item is not None and item.lock.legal_hold:
            held = Failure.of(FailureClass.LEGAL_HOLD, "AccessDenied")
            return DeleteOutcome.failed(held, sent=True, lock=item.lock)
        if item is not None and item.lock.retain_until is not None and item.lock.retain_until > self._clock():
            retained = Failure.of(FailureClass.LOCKED, "AccessDenied")
            return DeleteOutcome.failed(retained, sent=True, lock=item.lock)
        kept.remove(ref)
        return DeleteOutcome.acknowledge()


def _rows(kept: _Bucket, key_marker: str | None, version_id_marker: str | None) -> Iterator[ListedVersion]:
    """Everything after the markers; a marker version that has been deleted meanwhile still marks its place."""
    after = None if key_marker is None else key_marker.encode()
    for key in sorted(kept.keys, key=str.encode):
        if after is not None and key.encode() < after:
            continue
        # Within the marker's key: after that version, or after all of them.
        below = kept.serials.get(VersionRef(key, version_id_marker or ""), 0) if key == key_marker else None
        for position, item in enumerate(kept.keys[key]):
            if below is None or item.serial < below:
                yield _listed(key, item, is_latest=position == 0)


def _listed(key: str, item: _Object, *, is_latest: bool) -> ListedVersion:
    is_marker = item.body is None
    size, storage_class = len(item.body or b""), "" if is_marker else "STANDARD"
    return ListedVersion(key, item.version_id, item.etag, size, item.modified, is_latest, is_marker, storage_class)


def _inspection(item: _Object | None) -> Inspection:
    if item is None:
        return Inspection(Presence.GONE)
    if item.body is None:
        return Inspection(Presence.DELETE_MARKER, last_modified=item.modified)
    return Inspection(Presence.PRESENT, item.etag, len(item.body), item.modified, item.lock)
