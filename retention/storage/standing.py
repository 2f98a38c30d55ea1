"""How a bucket stands: who else may come in, what is in the way of deletions, and how far our clocks are apart.

Stores that know nothing of a question say so in many ways, or answer another one: whatever is not the answer is None.

Sources: AWS, GetBucketVersioning, GetBucketPolicyStatus, GetPublicAccessBlock, GetBucketAcl; RFC 9110 §6.6.1 (Date).
"""

import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any, Final

from retention.storage.client import Ask, Reply
from retention.storage.failures import FailureClass, StorageError
from retention.storage.port import Standing

EVERYBODY: Final = {
    "http://acs.amazonaws.com/groups/global/AllUsers": "everybody",
    "http://acs.amazonaws.com/groups/global/AuthenticatedUsers": "everybody with an account",
}
_SILENT: Final = frozenset({FailureClass.CREDENTIALS, FailureClass.BUCKET_MISSING, FailureClass.TRANSIENT})


def standing(ask: Ask, until: float) -> Standing:
    """Raises `StorageError` where the store does not answer, or does not know the bucket or us."""
    asked_at = time.time()
    versioning = ask("get_bucket_versioning", until)
    answered_at = time.time()
    if versioning.failure is not None and versioning.failure.kind in _SILENT:
        raise StorageError(versioning.failure)
    policy = ask("get_bucket_policy_status", until)
    block = ask("get_public_access_block", until)
    acl = ask("get_bucket_acl", until)
    ahead, doubt = _clock(versioning, asked_at, answered_at)
    needed = {
        "s3:GetBucketVersioning": versioning,
        "s3:GetBucketPolicyStatus": policy,
        "s3:GetBucketPublicAccessBlock": block,
        "s3:GetBucketAcl": acl,
    }
    return Standing(
        public_policy=_public(policy),
        public_grants=tuple(_grants(acl.data)) if "Grants" in acl.data else None,
        blocks=_blocks(block),
        mfa_delete=None if versioning.failure else versioning.data.get("MFADelete") == "Enabled",
        ahead=ahead,
        doubt=doubt,
        refused=tuple(
            action for action, reply in needed.items()
            if reply.failure is not None and reply.failure.kind is FailureClass.PERMISSION
        ),
    )  # fmt: skip


def _clock(reply: Reply, asked_at: float, answered_at: float) -> tuple[float | None, float]:
    """(seconds by which the store is ahead, give or take so many). Its Date has whole seconds, and is cut, not rounded."""
    headers = reply.data.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        said = parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError):
        return None, 0.0
    return said + 0.5 - (asked_at + answered_at) / 2, 0.5 + (answered_at - asked_at) / 2


def _public(reply: Reply) -> bool | None:
    if reply.failure is not None:
        return False if reply.failure.code == "NoSuchBucketPolicy" else None
    said: bool | None = reply.data.get("PolicyStatus", {}).get("IsPublic")
    return said


def _blocks(reply: Reply) -> frozenset[str] | None:
    if reply.failure is not None:
        return frozenset() if reply.failure.code == "NoSuchPublicAccessBlockConfiguration" else None
    said = reply.data.get("PublicAccessBlockConfiguration")
    return None if said is None else frozenset(name for name, is_on in said.items() if is_on)


def _grants(data: dict[str, Any]) -> Iterator[str]:
    for grant in data["Grants"]:
        whom = EVERYBODY.get(grant.get("Grantee", {}).get("URI", ""))
        if whom:
            yield f"{grant.get('Permission', '?')} to {whom}"
