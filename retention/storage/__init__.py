"""Object storage behind a narrow port. Nothing outside this package imports boto3."""

from functools import cache

from retention.storage.failures import Failure, FailureClass, Scope, StorageError
from retention.storage.port import (
    MAX_BATCH,
    REFUSED_ID,
    STOPPED_CODE,
    AddressingStyle,
    BucketRef,
    BucketState,
    DeleteOutcome,
    Inspection,
    InvalidRefs,
    LifecycleRule,
    ListedVersion,
    ListPage,
    LockMode,
    LockState,
    ObjectStore,
    Presence,
    Standing,
    Versioning,
    VersionRef,
)
from retention.storage.s3 import S3Store

__all__ = [
    "MAX_BATCH",
    "REFUSED_ID",
    "STOPPED_CODE",
    "AddressingStyle",
    "BucketRef",
    "BucketState",
    "DeleteOutcome",
    "Failure",
    "FailureClass",
    "Inspection",
    "InvalidRefs",
    "LifecycleRule",
    "ListPage",
    "ListedVersion",
    "LockMode",
    "LockState",
    "ObjectStore",
    "Presence",
    "Scope",
    "Standing",
    "StorageError",
    "VersionRef",
    "Versioning",
    "store_for",
]


def store_for(bucket: BucketRef) -> ObjectStore:
    """The adapter that speaks to `bucket`. Every bucket is behind the S3 API today, so all share one store."""
    if bucket.endpoint_url.partition("://")[0] not in ("", "http", "https"):
        raise ValueError(f"no adapter for {bucket.endpoint_url!r}")
    return _s3()


@cache
def _s3() -> S3Store:
    return S3Store()
