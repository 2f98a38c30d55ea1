"""What a worker holds in its hands: a batch of claimed commands, each with its targets."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from retention.storage import VersionRef


@dataclass(slots=True)
class Target:
    """One version that is still to go, or (`gone_at`) went before.

    Times are canonical text. `gone_at` is text where this claim saw its absence, a datetime where it was known before.
    """

    id: int
    ordinal: int
    object_version_id: int
    bucket_id: int
    ref: VersionRef
    etag: str
    size: int
    role: str
    stored_at: str
    listed_at: str | None
    gone_at: datetime | str | None
    evidence: dict[str, Any] | None
    current: bool  # of its key: goes after the older ones


@dataclass(slots=True)
class Claimed:
    """A command under our lease. With `inspect_due`, an earlier request may have been executed: look, and nothing else."""

    id: int
    key: str
    token: int
    cycle: int
    attempts: int
    lease_losses: int
    inspect_due: datetime | None
    taken_over: bool
    run_id: int
    item_id: int
    policy_id: int
    revision_id: int
    asset: str
    claims: int
    targets: list[Target] = field(default_factory=list)


@dataclass(slots=True)
class Batch:
    """Claimed commands of one tenant and bucket. `send_until`: time.monotonic() after which nothing may be sent."""

    tenant_id: int
    bucket_id: int
    epoch: int
    claimed_at: datetime
    send_until: float
    worker: str
    commands: list[Claimed]
    claimed: int
