"""What the store's answers and looks mean for a target: evidence, trouble, and words for people."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ledger.batch import Claimed, Target
from ledger.failures import Then, Trouble, rule_of
from retention.storage import (
    REFUSED_ID,
    STOPPED_CODE,
    DeleteOutcome,
    Failure,
    FailureClass,
    Inspection,
    Presence,
    Scope,
)

_GRAVITY: Final = (Then.RETRY, Then.PAUSE, Then.HOLD, Then.QUARANTINE)


@dataclass(frozen=True, slots=True)
class Look:
    """An inspection, and the database's time before it, as canonical JSON holds it."""

    seen: Inspection
    at: str


def note_gone(command: Claimed, looks: Mapping[int, Look], before: Mapping[str, Any] | None = None) -> Look | None:
    """Put evidence of absence on the targets that are gone; returns a look that saw nothing, if there was one.

    `before` is the evidence that they had been there, where their own is not it.
    """
    unseen = None
    for target in command.targets:
        look = looks.get(target.id)
        if look is None or target.gone_at:
            continue
        if look.seen.state is Presence.GONE:
            target.gone_at = look.at
            target.evidence = {"after": evidence(look), "before": dict(before or target.evidence or {})}
        elif look.seen.state is Presence.UNKNOWN:
            unseen = look
    return unseen


def evidence(look: Look) -> dict[str, str]:
    method = "listing" if look.seen.detail.endswith("not listed") else "inspection"
    return {"at": look.at, "method": method, "request_id": look.seen.request_id}


def mismatch(target: Target, look: Look) -> str | None:
    """The class of trouble where a look before the deletion does not show what was frozen; None: it does."""
    seen = look.seen
    if seen.state is Presence.UNKNOWN:
        return class_of(seen.failure) if seen.failure else Trouble.UNCONFIRMED
    if (seen.state is Presence.DELETE_MARKER) != (target.role == "delete_marker"):
        return FailureClass.VERSION_MISMATCH
    if seen.state is Presence.PRESENT and seen.etag != target.etag:
        return FailureClass.VERSION_MISMATCH
    return None


def names_nothing(target: Target, look: Look) -> bool:
    """Whether the store refuses the id itself, so that no version can ever have had it."""
    return look.seen.detail == REFUSED_ID and target.ref.version_id != "null"


def trouble_of_look(look: Look) -> str:
    """The class of an inspection that could not see: denied means that nobody can tell, not that it is there."""
    failure = look.seen.failure
    if failure is None or failure.kind is FailureClass.PERMISSION:
        return Trouble.UNCONFIRMED
    return class_of(failure)


def class_of(failure: Failure) -> str:
    if failure.kind is FailureClass.PERMISSION and failure.scope is Scope.BUCKET:
        return Trouble.BUCKET_DENIED
    return failure.kind


def beyond_objects(answer: DeleteOutcome) -> bool:
    """Whether a failure says something of the bucket or of this worker, so that going on is of no use now."""
    failure = answer.failure
    if failure is None or stopped(failure):
        return False
    unreachable = failure.kind is FailureClass.TRANSIENT and not answer.sent
    return unreachable or failure.scope in (Scope.BUCKET, Scope.WORKER)


def stopped(failure: Failure) -> bool:
    return failure.code == STOPPED_CODE


def gravity(answer: DeleteOutcome) -> int:
    return _GRAVITY.index(rule_of(class_of(answer.failure)).then) if answer.failure else -1


def of_answer(answer: DeleteOutcome) -> str:
    """One line for people: what the store said, and under which request id it can be asked about it."""
    failure = answer.failure
    parts = [failure.code, failure.message] if failure else ["acknowledged"]
    return sentence(parts, answer.request_id)


def of_look(look: Look) -> str:
    seen = look.seen
    if seen.detail == REFUSED_ID:
        parts = ["The store refuses this version id (HEAD 400), and no listing shows it."]
    elif seen.failure is not None:
        parts = [seen.failure.code, seen.failure.message, seen.detail]
    else:
        parts = [f"seen: {seen.state}", f"ETag {seen.etag}" if seen.etag else "", seen.detail]
    return sentence(parts, seen.request_id)


def sentence(parts: list[str], request_id: str) -> str:
    said = " ".join(part for part in parts if part)[:1000].replace("\x00", "\N{SYMBOL FOR NULL}")
    return f"{said} (request {request_id})" if request_id else said
