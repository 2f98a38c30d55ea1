"""Lifecycle rules of a bucket, by which the store itself deletes: from the S3 API's shape to the port's."""

from collections.abc import Mapping
from datetime import UTC
from typing import Any

from retention.storage.port import LifecycleRule


def rule(said: Mapping[str, Any], position: int) -> LifecycleRule:
    """One rule of GetBucketLifecycleConfiguration. A store that gives it no id has it named by its position."""
    chosen = said.get("Filter") or {}
    both = chosen.get("And") or chosen
    expiration, noncurrent = said.get("Expiration") or {}, said.get("NoncurrentVersionExpiration") or {}
    date = expiration.get("Date")
    return LifecycleRule(
        rule_id=said.get("ID") or f"#{position}",
        enabled=said.get("Status") == "Enabled",
        prefix=both.get("Prefix") or said.get("Prefix") or "",
        narrowed=bool(set(both) - {"Prefix"}),
        expire_days=expiration.get("Days"),
        expire_on=date.astimezone(UTC) if date else None,
        noncurrent_days=noncurrent.get("NoncurrentDays"),
        noncurrent_kept=noncurrent.get("NewerNoncurrentVersions") or 0,
        lone_markers=bool(expiration.get("ExpiredObjectDeleteMarker")),
    )
