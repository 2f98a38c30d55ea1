"""Stores for catalogue tests: small pages, and the ways in which real servers page that none shows on demand."""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime

from retention.storage import (
    BucketRef,
    BucketState,
    Inspection,
    LifecycleRule,
    ListedVersion,
    ListPage,
    ObjectStore,
    Presence,
    VersionRef,
)
from retention.storage.memory import MemoryStore

LONG_AGO = datetime(2020, 5, 17, 10, 30, tzinfo=UTC)


class SmallPages:
    """A store whose pages hold `size` versions, and which calls `between` before each page, with its number."""

    def __init__(self, store: ObjectStore, size: int, between: Callable[[int], None] | None = None) -> None:
        self.store, self.size, self.between, self.pages = store, size, between, 0

    def list_versions(self, bucket: BucketRef, **options: object) -> ListPage:
        self.pages += 1
        if self.between is not None:
            self.between(self.pages)
        return self.store.list_versions(bucket, **(options | {"max_keys": self.size}))

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)


class ForgetfulPages(SmallPages):
    """Like moto and Ceph RGW: when the marker version is gone, `end` the listing, or else skip the rest of its key."""

    def __init__(self, store: MemoryStore, size: int, between: Callable[[int], None], *, end: bool) -> None:
        super().__init__(store, size, between)
        self.end = end

    def list_versions(self, bucket: BucketRef, **options: object) -> ListPage:
        page = super().list_versions(bucket, **options)
        key, version_id = options.get("key_marker"), options.get("version_id_marker")
        if not version_id:
            return page
        there = self.store.inspect(bucket, [VersionRef(str(key), str(version_id))])
        if all(seen.state is not Presence.GONE for seen in there.values()):
            return page
        if self.end:
            return ListPage((), None, None, page.requested_at)
        return self.store.list_versions(bucket, **(options | {"version_id_marker": None, "max_keys": self.size}))


class Shows:
    """A store whose whole listing is these versions, whatever may be true; inspections find them, and `hidden` ones."""

    def __init__(self, *versions: ListedVersion, hidden: Collection[VersionRef] = ()) -> None:
        self.versions, self.hidden = versions, hidden

    def bucket_state(self, bucket: BucketRef) -> BucketState:
        return BucketState("enabled", False)

    def lifecycle_rules(self, bucket: BucketRef) -> list[LifecycleRule]:
        return []

    def list_versions(self, bucket: BucketRef, **options: object) -> ListPage:
        return ListPage(self.versions, None, None, datetime.now(UTC))

    def inspect(
        self, bucket: BucketRef, refs: Collection[VersionRef], **options: object
    ) -> dict[VersionRef, Inspection]:
        there = {each.ref for each in self.versions} | set(self.hidden)
        return {ref: Inspection(Presence.PRESENT if ref in there else Presence.GONE) for ref in refs}


def listed(key: str, version_id: str = "v1", **changes: object) -> ListedVersion:
    ordinary = ListedVersion(
        key, version_id, "d41d8cd98f00b204e9800998ecf8427e", 100, LONG_AGO, True, False, "STANDARD"
    )
    return replace(ordinary, **changes)
