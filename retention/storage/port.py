"""The narrow port to an object store: what the rest of the product may know about it.

Objects are named by key and exact version id. An answer of the store is never proof: `delete_versions` reports what was
said, `inspect` what was seen. Times are aware UTC datetimes, sizes bytes, ETags without their quotes.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Literal, Protocol, Self

from retention.storage.failures import Failure

REFUSED_ID: Final = "HEAD 400, not listed"  # detail of what is gone, or has an id that no version ever had
STOPPED_CODE: Final = "Stopped"  # the caller said not to proceed
MAX_BATCH: Final = 1000  # keys in one DeleteObjects request [AWS, DeleteObjects]
AddressingStyle = Literal["path", "virtual", "auto"]
LockMode = Literal["GOVERNANCE", "COMPLIANCE"]
Versioning = Literal["enabled", "suspended", "unversioned"]


class InvalidRefs(ValueError):
    """The caller named versions that must never reach a store. Raised before any network traffic."""


@dataclass(frozen=True, slots=True)
class BucketRef:
    """Where a bucket is and as whom to go there.

    `endpoint_url` '' is AWS itself. `credential_profile` names a profile of the AWS configuration files; '' is the
    default chain (environment, instance role). Secrets are never part of it.
    """

    name: str
    endpoint_url: str
    region: str
    addressing_style: AddressingStyle = "auto"
    credential_profile: str = ""


@dataclass(frozen=True, slots=True)
class VersionRef:
    """One exact version. The id 'null' is the one that a bucket without versioning replaces in place."""

    key: str
    version_id: str


@dataclass(frozen=True, slots=True)
class ListedVersion:
    """A version or delete marker as listed. A marker has size 0, no ETag and no storage class."""

    key: str
    version_id: str
    etag: str
    size: int
    last_modified: datetime
    is_latest: bool
    is_delete_marker: bool
    storage_class: str

    @property
    def ref(self) -> VersionRef:
        return VersionRef(self.key, self.version_id)


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a listing. `requested_at` is taken before the request leaves; both markers are None at the end."""

    versions: tuple[ListedVersion, ...]
    next_key_marker: str | None
    next_version_id_marker: str | None
    requested_at: datetime


@dataclass(frozen=True, slots=True)
class LockState:
    """Object Lock of one version. With `unknown`, some part could not be read: what is absent may be there."""

    mode: LockMode | None = None
    retain_until: datetime | None = None
    legal_hold: bool = False
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class BucketState:
    versioning: Versioning
    object_lock: bool


@dataclass(frozen=True, slots=True)
class LifecycleRule:
    """A rule by which the store deletes by itself under a key prefix; transitions are left out.

    `expire_days` after a current version was stored, or from `expire_on` on, it expires: a versioned bucket gets a delete
    marker, another loses the object. `noncurrent_days` after it ceased to be current, a version is deleted, but for the
    `noncurrent_kept` newest. `narrowed`: tags or sizes choose among the objects.
    """

    rule_id: str
    enabled: bool
    prefix: str = ""
    narrowed: bool = False
    expire_days: int | None = None
    expire_on: datetime | None = None
    noncurrent_days: int | None = None
    noncurrent_kept: int = 0
    lone_markers: bool = False


@dataclass(frozen=True, slots=True)
class Standing:
    """How a bucket stands to the world, to whoever deletes and to our clock. None: the store does not say.

    `public_policy`: its policy lets everybody in. `public_grants`: what its access control list gives to everybody.
    `blocks`: which of the four blocks of public access are on, as the S3 API names them. `mfa_delete`: no version is
    deleted without a code that a person reads off a device. `ahead`: seconds by which the store's clock is ahead of this
    host's, give or take `doubt`. `refused`: the permissions for want of which a part of this is None.
    """

    public_policy: bool | None = None
    public_grants: tuple[str, ...] | None = None
    blocks: frozenset[str] | None = None
    mfa_delete: bool | None = None
    ahead: float | None = None
    doubt: float = 0.0
    refused: tuple[str, ...] = ()


class Presence(StrEnum):
    """What an inspection saw."""

    PRESENT = "present"
    GONE = "gone"  # absent while the bucket itself answers
    DELETE_MARKER = "delete_marker"  # the id names a marker, not data
    UNKNOWN = "unknown"  # the store did not let us see


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was seen of one version. `lock` is None unless the look happened to show it; `failure` explains UNKNOWN."""

    state: Presence
    etag: str = ""
    size: int | None = None
    last_modified: datetime | None = None
    lock: LockState | None = None
    request_id: str = ""
    detail: str = ""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class DeleteOutcome:
    """What the store said about one version: acknowledged, or failed with a class. Build it with the constructors.

    `sent`: some byte of a request naming this version left the process. `lock` is what was read after an AccessDenied.
    """

    acknowledged: bool
    sent: bool
    request_id: str = ""
    failure: Failure | None = None
    lock: LockState | None = None

    @classmethod
    def acknowledge(cls, request_id: str = "") -> Self:
        """The store says the version is gone. So it also says of versions that never were: inspect before and after."""
        return cls(True, True, request_id)

    @classmethod
    def failed(cls, failure: Failure, *, sent: bool, request_id: str = "", lock: LockState | None = None) -> Self:
        return cls(False, sent, request_id, failure, lock)


class ObjectStore(Protocol):
    """What the product asks of a store."""

    def list_versions(
        self,
        bucket: BucketRef,
        *,
        prefix: str = "",
        key_marker: str | None = None,
        version_id_marker: str | None = None,
        max_keys: int = 1000,
    ) -> ListPage:
        """One page of versions and markers, keys ascending in UTF-8 byte order, each key newest first.

        `key_marker` alone resumes after all versions of that key; with `version_id_marker`, after that version. Raises
        `StorageError`, and `ValueError` for a version marker without a key marker.
        """

    def inspect(
        self, bucket: BucketRef, refs: Collection[VersionRef], *, deadline_seconds: float = 60.0
    ) -> dict[VersionRef, Inspection]:
        """Look at up to 1,000 exact versions without changing anything: each ref gets exactly one answer.

        Never raises for trouble of the store, which is UNKNOWN; raises `InvalidRefs` for refs that cannot be.
        """

    def delete_versions(
        self,
        bucket: BucketRef,
        refs: Collection[VersionRef],
        *,
        deadline_seconds: float,
        proceed: Callable[[], bool] = lambda: True,
    ) -> dict[VersionRef, DeleteOutcome]:
        """Ask for the removal of up to 1,000 exact versions: each ref is accounted for exactly once.

        Requests may go several side by side. `proceed` is asked before each such wave, in the caller's thread; once it
        says no, nothing more is sent, and what was not sent is reported so (`STOPPED_CODE`).

        Returns by the deadline (name resolution, which has no time limit, apart); what is then open is reported as
        ambiguous, and nothing is sent afterwards. Never raises for trouble of the store; raises `InvalidRefs`.
        """

    def lock_state(self, bucket: BucketRef, ref: VersionRef) -> LockState:
        """Retention and legal hold of one version. Never raises for trouble of the store: that is `unknown`."""

    def bucket_state(self, bucket: BucketRef) -> BucketState:
        """Versioning and Object Lock of a bucket. Raises `StorageError`."""

    def lifecycle_rules(self, bucket: BucketRef) -> Sequence[LifecycleRule]:
        """The bucket's lifecycle rules, switched off ones too; none where it has none.

        Raises `StorageError`: then they are not known.
        """

    def standing(self, bucket: BucketRef) -> Standing:
        """Who else may come in, what is in the way of deletions, and the store's clock; changes nothing.

        Raises `StorageError` where the store does not answer at all.
        """


def check_refs(refs: Collection[VersionRef]) -> Sequence[VersionRef]:
    """The refs in order, or `InvalidRefs`.

    An empty version id is the dangerous one: several stores answer it by writing a new delete marker.
    """
    for ref in refs:
        if not ref.key or not ref.version_id:
            raise InvalidRefs(f"a key and an exact version id are required: {ref!r}")
        try:
            ref.key.encode()
        except UnicodeEncodeError as error:
            raise InvalidRefs(f"the key is not Unicode text: {ref!r}") from error
    if len(refs) > MAX_BATCH:
        raise InvalidRefs(f"{len(refs)} versions in one call; at most {MAX_BATCH}")
    if len(set(refs)) != len(refs):
        raise InvalidRefs("the same version twice in one call")
    return tuple(refs)
