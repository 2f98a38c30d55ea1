"""Looking at exact versions: one listing where many lie close together, HEAD where few do.

Absence is believed only from a listing that is complete for its prefix. Paging is not used: SeaweedFS loses keys
between pages where `a b` and `a/b` both exist, and others lose the place when a marker version is deleted meanwhile.

Sources: AWS, HeadObject, HeadBucket, ListObjectVersions, GetObjectRetention, GetObjectLegalHold.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC
from functools import partial
from typing import Any, Final, TypeVar

from retention.storage.answers import unaccounted
from retention.storage.client import Ask, Reply
from retention.storage.failures import Failure, FailureClass, Scope
from retention.storage.port import REFUSED_ID, Inspection, LockState, Presence, VersionRef

DENSE: Final = 16  # refs under one prefix from which a listing of up to 1,000 versions beats one HEAD each
PARALLEL: Final = 8
_BY_HEAD: Final = "HEAD 404"
_NO_RETENTION: Final = frozenset(
    {
        "NoSuchObjectLockConfiguration",
        "ObjectLockConfigurationNotFoundError",
        "NoSuchVersion",
        "NoSuchKey",
        "MethodNotAllowed",  # a delete marker: markers are not WORM
    }
)
_NO_HOLD: Final = _NO_RETENTION | {"NoSuchObjectLegalHold"}

Item = TypeVar("Item")
Result = TypeVar("Result")


def inspect(ask: Ask, refs: Sequence[VersionRef], until: float) -> dict[VersionRef, Inspection]:
    """What is there of `refs`. `until`: time.monotonic() after which whatever is open is UNKNOWN."""
    listable = [ref for ref in refs if _listable(ref.key)]
    found = _survey(ask, listable, until, dense=DENSE)
    sparse = [ref for ref in refs if ref not in found]
    looks = in_parallel(partial(_look, ask, until), sparse)
    found.update((ref, seen) for ref, (seen, _) in zip(sparse, looks, strict=True))
    unsure = [ref for ref, (_, is_unsure) in zip(sparse, looks, strict=True) if is_unsure]
    for ref, listed in _survey(ask, unsure, until, dense=1).items():
        refused = found[ref].state is Presence.UNKNOWN and listed.state is Presence.GONE  # so it was no SSE-C object
        found[ref] = replace(listed, detail=REFUSED_ID) if refused else listed
    gone_by_head = [ref for ref, seen in found.items() if seen.state is Presence.GONE and seen.detail == _BY_HEAD]
    if gone_by_head:
        bucket = ask("head_bucket", until)  # HEAD of an object says 404 for a missing bucket, too
        if bucket.failure is not None:
            unseen = _unknown(_bucket_trouble(bucket, bucket.failure), bucket.request_id, "the bucket does not answer")
            found.update((ref, unseen) for ref in gone_by_head)
    return found


def lock_state(ask: Ask, ref: VersionRef, until: float) -> LockState:
    """Retention and legal hold. HEAD shows both, or neither to those without the permission, so gaps are asked for."""
    name = {"Key": ref.key, "VersionId": ref.version_id}
    seen = _lock_in_head(ask("head_object", until, **name).data) or LockState(unknown=True)
    if not seen.unknown:
        return seen
    if seen.mode is None:
        reply = ask("get_object_retention", until, **name)
        seen = replace(seen, **_retention(reply.data.get("Retention", {})), unknown=_unread(reply, _NO_RETENTION))
    else:
        seen = replace(seen, unknown=False)
    if not seen.legal_hold:
        reply = ask("get_object_legal_hold", until, **name)
        held = reply.data.get("LegalHold", {}).get("Status") == "ON"
        seen = replace(seen, legal_hold=held, unknown=seen.unknown or _unread(reply, _NO_HOLD))
    return seen


def in_parallel(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Results in the order of `items`. All threads have ended when this returns."""
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(max_workers=min(PARALLEL, len(items))) as pool:
        return list(pool.map(function, items))


def _listable(key: str) -> bool:
    """Whether every store lists this key as it is. Control characters and empty path segments are rewritten by some."""
    return key.isprintable() and "//" not in key and not key.startswith("/")


def _survey(ask: Ask, refs: Sequence[VersionRef], until: float, *, dense: int) -> dict[VersionRef, Inspection]:
    """What listings show of `refs`: of the common prefix, and where that holds more than a page, of its parts.

    Parts with fewer than `dense` refs, and whatever a listing could not settle, are left out of the answer.
    """
    found: dict[VersionRef, Inspection] = {}
    groups = [list(refs)] if refs else []
    while groups:
        group = groups.pop()
        if len(group) < dense:
            continue
        prefix = _common_prefix([ref.key for ref in group])
        reply = ask("list_object_versions", until, Prefix=prefix)
        if reply.failure is not None or not _is_listing(reply):
            break
        seen = _listed(reply)
        complete = not reply.data.get("IsTruncated")
        parts: dict[str, list[VersionRef]] = defaultdict(list)
        for ref in group:
            if ref in seen:
                found[ref] = seen[ref]
            elif complete and _listable(ref.key):
                found[ref] = Inspection(Presence.GONE, request_id=reply.request_id, detail="not listed")
            elif not complete and ref.key != prefix:
                parts[ref.key[len(prefix)]].append(ref)
        groups.extend(parts.values())
    return found


def _common_prefix(keys: Sequence[str]) -> str:
    low, high = min(keys), max(keys)
    differing = (position for position, (a, b) in enumerate(zip(low, high, strict=False)) if a != b)
    return low[: next(differing, min(len(low), len(high)))]


def _is_listing(reply: Reply) -> bool:
    """An empty or HTML body parses to no listing at all, which must not pass for an empty one."""
    return "IsTruncated" in reply.data and "Name" in reply.data


def _listed(reply: Reply) -> dict[VersionRef, Inspection]:
    seen: dict[VersionRef, Inspection] = {}
    for item in reply.data.get("Versions", ()):
        seen[VersionRef(item["Key"], item["VersionId"])] = Inspection(
            Presence.PRESENT,
            etag=item.get("ETag", "").strip('"'),
            size=item.get("Size"),
            last_modified=item["LastModified"].astimezone(UTC),
            request_id=reply.request_id,
        )
    for item in reply.data.get("DeleteMarkers", ()):
        marked = Inspection(
            Presence.DELETE_MARKER, last_modified=item["LastModified"].astimezone(UTC), request_id=reply.request_id
        )
        seen[VersionRef(item["Key"], item["VersionId"])] = marked
    return seen


def _look(ask: Ask, until: float, ref: VersionRef) -> tuple[Inspection, bool]:
    """One HEAD, and whether a listing may know better."""
    reply = ask("head_object", until, Key=ref.key, VersionId=ref.version_id)
    if reply.failure is None:
        return _present(ref, reply), False
    if reply.status == 405:
        return Inspection(Presence.DELETE_MARKER, request_id=reply.request_id), False
    if reply.status == 404:
        # SeaweedFS and Ceph RGW say 404 to the HEAD of a delete marker that is there; AWS says 405.
        gone = Inspection(Presence.GONE, request_id=reply.request_id, detail=_BY_HEAD)
        return gone, reply.server != "AmazonS3"
    # 400: a malformed version id, or SSE-C, whose HEAD needs the customer's key.
    return _unknown(reply.failure, reply.request_id, f"HEAD {reply.status}"), reply.status == 400


def _present(ref: VersionRef, reply: Reply) -> Inspection:
    answered = reply.data.get("VersionId", ref.version_id)  # absent where versioning never was
    if answered != ref.version_id or "ETag" not in reply.data:
        return _unknown(unaccounted(f"HEAD was answered for version {answered!r}"), reply.request_id, "HEAD")
    return Inspection(
        Presence.PRESENT,
        etag=reply.data["ETag"].strip('"'),
        size=reply.data.get("ContentLength"),
        last_modified=reply.data["LastModified"].astimezone(UTC) if "LastModified" in reply.data else None,
        lock=_lock_in_head(reply.data),
        request_id=reply.request_id,
    )


def _unknown(failure: Failure, request_id: str, detail: str) -> Inspection:
    """A look has no effect that could be in doubt, so its failure is never ambiguous."""
    return Inspection(Presence.UNKNOWN, request_id=request_id, detail=detail, failure=replace(failure, ambiguous=False))


def _bucket_trouble(reply: Reply, failure: Failure) -> Failure:
    if reply.status == 404:
        return replace(failure, kind=FailureClass.BUCKET_MISSING, scope=Scope.BUCKET)
    return failure


def _lock_in_head(head: dict[str, Any]) -> LockState | None:
    hold = head.get("ObjectLockLegalHoldStatus")
    retention = _retention(
        {"Mode": head.get("ObjectLockMode"), "RetainUntilDate": head.get("ObjectLockRetainUntilDate")}
    )
    if hold is None and retention["mode"] is None:
        return None
    return LockState(**retention, legal_hold=hold == "ON", unknown=hold is None or retention["mode"] is None)


def _retention(said: dict[str, Any]) -> dict[str, Any]:
    until = said.get("RetainUntilDate")
    return {"mode": said.get("Mode") or None, "retain_until": until.astimezone(UTC) if until else None}


def _unread(reply: Reply, no_lock: Iterable[str]) -> bool:
    """Whether the answer leaves open if there is a lock."""
    failure = reply.failure
    if failure is None or failure.code in no_lock:
        return False
    return not (failure.code == "InvalidRequest" and "lock" in failure.message.lower())  # a bucket without locks
