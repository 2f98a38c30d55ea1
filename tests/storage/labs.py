"""A laboratory: a store under test, and the means to prepare it, which are not part of the port."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import count
from typing import Any, Protocol
from uuid import uuid4

from retention.storage import BucketRef, LockMode, ObjectStore, Versioning, VersionRef, lifecycle
from retention.storage.memory import MemoryStore
from retention.storage.s3 import S3Store
from tests.servers import REGION, client


class Lab(Protocol):
    name: str
    store: ObjectStore

    def new_bucket(self, *, versioning: Versioning = "enabled", object_lock: bool = False) -> BucketRef: ...
    def set_versioning(self, bucket: BucketRef, versioning: Versioning) -> None: ...
    def put(self, bucket: BucketRef, key: str, body: bytes = b"x") -> VersionRef: ...
    def put_marker(self, bucket: BucketRef, key: str) -> VersionRef: ...
    def lock(
        self, bucket: BucketRef, ref: VersionRef, *, until: datetime | None = None, hold: bool = False
    ) -> None: ...
    def set_lifecycle(self, bucket: BucketRef, rules: list[dict[str, Any]]) -> None: ...


def put_all(lab: Lab, bucket: BucketRef, keys: Sequence[str]) -> list[VersionRef]:
    if lab.name == "memory":
        return [lab.put(bucket, key) for key in keys]
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda key: lab.put(bucket, key), keys))


class MemoryLab:
    name = "memory"

    def __init__(self) -> None:
        self.store: MemoryStore = MemoryStore()
        self._names = count()

    def new_bucket(self, *, versioning: Versioning = "enabled", object_lock: bool = False) -> BucketRef:
        bucket = BucketRef(f"bucket{next(self._names)}", "", REGION)
        self.store.create_bucket(bucket, versioning=versioning, object_lock=object_lock)
        return bucket

    def set_versioning(self, bucket: BucketRef, versioning: Versioning) -> None:
        self.store.set_versioning(bucket, versioning)

    def put(self, bucket: BucketRef, key: str, body: bytes = b"x") -> VersionRef:
        return self.store.put(bucket, key, body)

    def put_marker(self, bucket: BucketRef, key: str) -> VersionRef:
        return self.store.put_marker(bucket, key)

    def lock(self, bucket: BucketRef, ref: VersionRef, *, until: datetime | None = None, hold: bool = False) -> None:
        mode: LockMode | None = "GOVERNANCE" if until else None
        self.store.lock(bucket, ref, mode=mode, retain_until=until, legal_hold=hold)

    def set_lifecycle(self, bucket: BucketRef, rules: list[dict[str, Any]]) -> None:
        self.store.set_lifecycle(bucket, *(lifecycle.rule(each, position) for position, each in enumerate(rules, 1)))


class S3Lab:
    def __init__(self, name: str, endpoint_url: str) -> None:
        self.name = name
        self.store: S3Store = S3Store()
        self.endpoint_url = endpoint_url
        self._client = client(endpoint_url)

    def new_bucket(self, *, versioning: Versioning = "enabled", object_lock: bool = False) -> BucketRef:
        bucket = BucketRef(f"b{uuid4().hex}", self.endpoint_url, REGION, "path")
        self._client.create_bucket(Bucket=bucket.name, ObjectLockEnabledForBucket=object_lock)
        if not object_lock:
            self.set_versioning(bucket, versioning)
        return bucket

    def set_versioning(self, bucket: BucketRef, versioning: Versioning) -> None:
        if versioning != "unversioned":
            status = {"Status": versioning.capitalize()}
            self._client.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration=status)

    def put(self, bucket: BucketRef, key: str, body: bytes = b"x") -> VersionRef:
        answer = self._client.put_object(Bucket=bucket.name, Key=key, Body=body)
        return VersionRef(key, answer.get("VersionId", "null"))

    def put_marker(self, bucket: BucketRef, key: str) -> VersionRef:
        return VersionRef(key, self._client.delete_object(Bucket=bucket.name, Key=key)["VersionId"])

    def lock(self, bucket: BucketRef, ref: VersionRef, *, until: datetime | None = None, hold: bool = False) -> None:
        target = {"Bucket": bucket.name, "Key": ref.key, "VersionId": ref.version_id}
        if until:
            self._client.put_object_retention(**target, Retention={"Mode": "GOVERNANCE", "RetainUntilDate": until})
        if hold:
            self._client.put_object_legal_hold(**target, LegalHold={"Status": "ON"})

    def set_lifecycle(self, bucket: BucketRef, rules: list[dict[str, Any]]) -> None:
        self._client.put_bucket_lifecycle_configuration(Bucket=bucket.name, LifecycleConfiguration={"Rules": rules})
