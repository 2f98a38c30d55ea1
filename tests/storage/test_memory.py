"""What the adapter in memory can do beyond the contract: faults, and a clock."""

from datetime import UTC, datetime, timedelta

import pytest

from retention.storage import BucketRef, Failure, FailureClass, Presence, StorageError, VersionRef
from retention.storage.memory import Fault, MemoryStore

BUCKET = BucketRef("b", "", "us-east-1")
LOST = Failure.of(FailureClass.TRANSIENT, "ReadTimeoutError", ambiguous=True)


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    store.create_bucket(BUCKET)
    return store


def delete(store: MemoryStore, *refs: VersionRef):
    return store.delete_versions(BUCKET, refs, deadline_seconds=1)


def test_a_fault_may_hide_a_deletion_that_happened(store: MemoryStore) -> None:
    gone, kept, untouched = (store.put(BUCKET, key) for key in "abc")
    store.inject(Fault("delete_versions", LOST, frozenset({gone}), executed=True))
    store.inject(Fault("delete_versions", LOST, frozenset({kept})))
    assert delete(store, gone, untouched)[gone].failure == LOST
    assert delete(store, kept)[kept].failure == LOST
    seen = store.inspect(BUCKET, [gone, kept, untouched])
    assert [seen[ref].state for ref in (gone, kept, untouched)] == [Presence.GONE, Presence.PRESENT, Presence.GONE]
    assert delete(store, kept)[kept].acknowledged  # a fault is used up


def test_every_operation_can_fail(store: MemoryStore) -> None:
    ref = store.put(BUCKET, "k")
    for operation in ("list_versions", "inspect", "lock_state", "bucket_state", "lifecycle_rules", "standing"):
        store.inject(Fault(operation, LOST))
    with pytest.raises(StorageError):
        store.list_versions(BUCKET)
    with pytest.raises(StorageError):
        store.bucket_state(BUCKET)
    with pytest.raises(StorageError):
        store.lifecycle_rules(BUCKET)
    with pytest.raises(StorageError):
        store.standing(BUCKET)
    assert store.lock_state(BUCKET, ref).unknown
    assert store.inspect(BUCKET, [ref])[ref].failure == LOST
    assert [operation for operation, _ in store.calls] == [
        "list_versions", "bucket_state", "lifecycle_rules", "standing", "lock_state", "inspect",
    ]  # fmt: skip


def test_a_hook_may_end_the_process(store: MemoryStore) -> None:
    ref = store.put(BUCKET, "k")

    def die(operation: str, *_: object) -> None:
        raise KeyboardInterrupt(operation)

    store.before_call = die
    with pytest.raises(KeyboardInterrupt):
        delete(store, ref)
    store.before_call = None
    assert store.inspect(BUCKET, [ref])[ref].state is Presence.PRESENT


def test_a_retention_ends_with_its_time() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    store = MemoryStore(clock=lambda: now)
    store.create_bucket(BUCKET, object_lock=True)
    ref = store.put(BUCKET, "k")
    store.lock(BUCKET, ref, mode="COMPLIANCE", retain_until=now + timedelta(days=1))
    failure = delete(store, ref)[ref].failure
    assert failure is not None
    assert failure.kind is FailureClass.LOCKED
    now += timedelta(days=2)
    assert delete(store, ref)[ref].acknowledged


def test_a_listing_goes_on_after_a_marker_version_that_is_gone(store: MemoryStore) -> None:
    newest, middle, oldest = reversed([store.put(BUCKET, "k") for _ in range(3)])
    page = store.list_versions(BUCKET, max_keys=2)
    assert [row.ref for row in page.versions] == [newest, middle]
    delete(store, middle)
    rest = store.list_versions(BUCKET, key_marker=page.next_key_marker, version_id_marker=page.next_version_id_marker)
    assert [row.ref for row in rest.versions] == [oldest]


def test_a_dropped_bucket_is_missing(store: MemoryStore) -> None:
    ref = store.put(BUCKET, "k")
    with pytest.raises(KeyError):
        store.lock(BUCKET, VersionRef("nosuch", "v"))
    store.drop_bucket(BUCKET)
    assert store.lock_state(BUCKET, ref).unknown
    with pytest.raises(StorageError):
        store.put(BUCKET, "k")
