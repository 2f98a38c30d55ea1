"""What each class of failure means for a command: whether to try again, how often, how far it reaches, what a person does.

The store's classes come from `retention.storage`; the ledger adds its own. A pure module.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from retention.storage import FailureClass


class Trouble(StrEnum):
    """The ledger's own classes."""

    ALREADY_ABSENT = "already_absent"  # gone before we ever sent a request
    SURVIVED = "survived"  # acknowledged by the store, and still there
    UNCONFIRMED = "unconfirmed"  # its absence could not be seen
    BUCKET_DENIED = "bucket_denied"  # a whole request was denied
    OLDER_VERSION = "older_version"  # deleting it would bring an older version back to life
    WORKER_LOST = "worker_lost"  # workers end while they have it


class Then(StrEnum):
    """What follows a failure."""

    RETRY = "retry"
    HOLD = "hold"  # the store protects it: held until the lock ends
    QUARANTINE = "quarantine"
    PAUSE = "pause"  # nobody is charged; the worker stops working on the bucket


@dataclass(frozen=True, slots=True)
class Rule:
    """`budget`: charged attempts before quarantine. Backoff: capped exponential, seconds, full jitter.

    `at_bucket`: the cause lies with one bucket, and so does its repair.
    """

    then: Then
    next_action: str
    budget: int = 1
    base: float = 2.0
    cap: float = 900.0
    charged: bool = True
    at_bucket: bool = False


# What says nothing of the health of a run or a bucket: protection that does its work, a pace that was too fast, faults of a
# worker's own, and what was decided before the store was asked for anything.
BLAMELESS: Final[frozenset[str]] = frozenset(
    {
        FailureClass.THROTTLED,
        FailureClass.CREDENTIALS,
        FailureClass.LOCKED,
        FailureClass.LEGAL_HOLD,
        Trouble.ALREADY_ABSENT,
        Trouble.OLDER_VERSION,
        Trouble.WORKER_LOST,
    }
)

RULES: Final[dict[str, Rule]] = {
    FailureClass.TRANSIENT: Rule(
        Then.RETRY, "The store kept failing. See whether it is healthy, then replay.", budget=8
    ),
    FailureClass.CONFLICT: Rule(
        Then.RETRY, "Another operation on the object kept getting in the way. Find it, then replay.", budget=8
    ),
    FailureClass.THROTTLED: Rule(
        Then.RETRY, "The store asked to slow down; the rate was lowered. Nothing to do.", cap=60.0, charged=False
    ),
    FailureClass.CREDENTIALS: Rule(
        Then.PAUSE,
        "The worker's credentials, clock or region are wrong. Repair them; the commands go on by themselves.",
        base=60.0,
        cap=300.0,
        charged=False,
    ),
    FailureClass.LOCKED: Rule(
        Then.HOLD, "The store retains it. A run after the end of the retention takes it up again.", charged=False
    ),
    FailureClass.LEGAL_HOLD: Rule(
        Then.HOLD, "A legal hold at the store protects it. A run after its release takes it up again.", charged=False
    ),
    FailureClass.PERMISSION: Rule(
        Then.QUARANTINE, "The store denies it. Grant s3:DeleteObjectVersion on the key, then replay.", at_bucket=True
    ),
    FailureClass.BUCKET_MISSING: Rule(
        Then.RETRY,
        "The bucket does not exist at its endpoint, which proves nothing of the object. Correct the bucket, then replay.",
        budget=3,
        base=120.0,
        at_bucket=True,
    ),
    Trouble.BUCKET_DENIED: Rule(
        Then.RETRY,
        "The store denies everything in the bucket. Grant s3:DeleteObjectVersion and s3:DeleteObject, then replay.",
        budget=3,
        base=120.0,
        at_bucket=True,
    ),
    FailureClass.VERSION_MISMATCH: Rule(
        Then.QUARANTINE,
        "What the store has under this name is not what was frozen. Sync the catalogue; a later run judges it anew.",
    ),
    FailureClass.MALFORMED_VERSION: Rule(
        Then.QUARANTINE, "The store does not know this version id. Correct the catalogue, then close without retry."
    ),
    FailureClass.MALFORMED_REQUEST: Rule(
        Then.QUARANTINE, "The store refuses to understand a request for this key. Report it, then close or replay."
    ),
    Trouble.ALREADY_ABSENT: Rule(
        Then.QUARANTINE,
        "It was gone before any request of ours. Find out who removed it, then close without retry, or replay where "
        "the policy takes absence for success.",
    ),
    Trouble.SURVIVED: Rule(
        Then.RETRY, "The store says deleted and still shows it. Ask its operator, then replay.", budget=8
    ),
    Trouble.UNCONFIRMED: Rule(
        Then.RETRY,
        "Whether it is gone cannot be seen. Grant s3:ListBucketVersions and s3:GetObjectVersion, then replay.",
        budget=8,
        base=30.0,
        at_bucket=True,
    ),
    Trouble.OLDER_VERSION: Rule(
        Then.QUARANTINE,
        "Older versions of the key are still there and would come back to life. Decide about those first, then replay.",
    ),
    Trouble.WORKER_LOST: Rule(
        Then.QUARANTINE, "Every worker that took it ended before it could answer. Look at their logs, then replay."
    ),
}

MAX_LEASE_LOSSES: Final = 6  # then a command is a suspect no longer: it goes to quarantine
SUSPECT_AFTER: Final = 2  # lease losses after which a command is claimed alone


def rule_of(kind: str) -> Rule:
    return RULES[kind]
