"""Reviewers take items out of a sealed manifest: exempt them, or extend their retention. What remains is what is approved.

The manifest itself never changes. `remaining_root` is made as `manifest_root` is, from the digests of parts in order, where
a part's digest leaves its exempted items out; so both are equal where nothing is exempted.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

import structlog
from django.db import connection, transaction

from cleanup_project.base import audit, clock, sqlfiles, tenancy
from cleanup_project.base.models import User
from ledger import notices
from ledger.exceptions import LedgerError, NotPermitted
from ledger.models import CleanupRun, ItemDisposition, ManifestItem, ManifestReview
from ledger.runs import OPEN_TO_REVIEW
from ledger.states import RunState
from retention import dispositions as kept
from retention.exceptions import RetentionError

CHUNK: Final = 1000
Kind = ItemDisposition.Kind
Stretch = tuple[int, int]  # the first and the last ordinal

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Items by their ids, or those that fulfil everything that is named here: original's bucket and key prefix, revision,
    and a half-open range of the instants since which they are eligible."""

    items: Sequence[int] = ()
    bucket_id: int | None = None
    prefix: str = ""
    revision_id: int | None = None
    since_from: datetime | None = None
    since_to: datetime | None = None

    def words(self) -> dict[str, Any]:
        """What is named, JSON-ready."""
        named = {name: value for name, value in asdict(self).items() if value not in (None, "", ())}
        return {
            name: len(value) if name == "items" else value.isoformat() if isinstance(value, datetime) else value
            for name, value in named.items()
        }


@dataclass(frozen=True, slots=True)
class Review:
    """What one reviewer decided about the chosen items. `until` goes with an extension."""

    kind: ItemDisposition.Kind
    by: User
    reason: str
    until: datetime | None = None


def exempt(*, run: CleanupRun, chosen: Chosen, by: User, reason: str) -> int:
    """Keep these items from destruction by this and by later runs; returns how many they are."""
    return dispose(run, chosen, Review(Kind.EXEMPT, by, reason))


def extend(*, run: CleanupRun, chosen: Chosen, until: datetime, by: User, reason: str) -> int:
    """Keep these items until then; a later run may find them again. Returns how many they are."""
    if until <= clock.now():
        raise LedgerError("The new end must lie in the future.", field="until")
    return dispose(run, chosen, Review(Kind.EXTEND, by, reason, until))


def dispose(run: CleanupRun, chosen: Chosen, review: Review) -> int:
    """In transactions of at most CHUNK items; stopped in between, it may be repeated, and goes on with the rest.

    Raises NotPermitted, and LedgerError for a run that is authorised or has ended, and where nothing is chosen. In
    its cooling-off time a run goes back to wait for an approval.
    """
    if not review.by.has_perm("base.approve_run"):
        raise NotPermitted(f"{review.by} may not exempt items: no role of theirs has the right approve_run.")
    tenancy.permit(review.by, run, NotPermitted)
    if not review.reason.strip():
        raise LedgerError("State a reason: why are these items kept?")
    if not chosen.words():
        raise LedgerError("Name at least one condition. To keep everything, cancel the run.")
    total = sum(dispose_stretch(run.pk, stretch, chosen, review) for stretch in stretches(run, chosen))
    if not total:
        raise LedgerError("Nothing that remains in the run is meant by this: see its items.")
    reckon(run.pk)
    return total


def stretches(run: CleanupRun, chosen: Chosen) -> list[Stretch]:
    """Where to look, in order, at most CHUNK ordinals at a time."""
    if not chosen.items:
        return [(first, first + CHUNK - 1) for first in range(1, (run.item_count or 0) + 1, CHUNK)]
    ordinals = list(ManifestItem.objects.filter(pk__in=chosen.items, run=run).values_list("ordinal", flat=True))
    if len(ordinals) < len(set(chosen.items)):
        raise LedgerError(f"Not all of these items are in {run}.")
    firsts = sorted({(ordinal - 1) // CHUNK * CHUNK + 1 for ordinal in ordinals})
    return [(first, first + CHUNK - 1) for first in firsts]


def dispose_stretch(run_id: int, stretch: Stretch, chosen: Chosen, review: Review, *, on_record: bool = True) -> int:
    """Take the chosen items of one stretch out of the run, in one transaction; returns how many they are.

    `on_record`: in the run's own history as well; a bulk job is there once.
    """
    with transaction.atomic():
        run = CleanupRun.objects.select_for_update(no_key=True).get(pk=run_id)
        if RunState(run.state) not in OPEN_TO_REVIEW:
            raise LedgerError(
                f"{run} is {run.get_state_display()}: items are exempted before it is authorised. Cancel it, or place a hold."
            )
        parameters = {
            **asdict(chosen),
            "items": list(chosen.items) or None,
            "run": run_id,
            "first": stretch[0],
            "last": stretch[1],
            "kind": review.kind,
            "until": review.until,
            "reason": review.reason,
            "by": review.by.pk,
        }
        with connection.cursor() as cursor:
            cursor.execute(sqlfiles.read(__file__, "dispose.sql"), parameters)
            number, originals = cursor.fetchone()
        if number:
            void(run, number)
            if on_record:
                note(run, number, chosen, review)
            keep(originals, review)
            if run.state == RunState.COOLING_OFF:
                run.exempt_count += number
                notices.tell(run.tenant_id, [notices.needs_approval(run, "exemption")])
    return int(number)


def keep(originals: Sequence[int], review: Review) -> None:
    """What is kept here is kept by later runs as well."""
    said: dict[str, Any] = {"by": review.by, "reason": review.reason}
    try:
        if review.until is None:
            kept.exempt(originals, **said)
        else:
            kept.extend(originals, until=review.until, **said)
    except RetentionError as refusal:
        raise LedgerError(str(refusal), field=refusal.field) from refusal


def void(run: CleanupRun, number: int) -> None:
    """What was approved is no longer what remains: that must be counted and approved anew."""
    fields: dict[str, Any] = {"remaining_root": "", "exempt_count": run.exempt_count + number}
    if run.state == RunState.COOLING_OFF:
        fields |= {
            "state": RunState.NEEDS_APPROVAL,
            "authorised_at": None,
            "authorised_by": None,
            "authorisation": "",
            "cooling_until": None,
        }
    CleanupRun.objects.filter(pk=run.pk).update(**fields)


def note(run: CleanupRun, number: int, chosen: Chosen, review: Review) -> None:
    audit.record(
        action=f"run.{review.kind}",
        subject=run,
        by=review.by,
        reason=review.reason,
        before={"state": run.state},
        after={"items": number, "until": review.until and review.until.isoformat(), "chosen": chosen.words()},
    )


def under_review(run_id: int) -> ManifestReview | None:
    """The bulk job that is still taking items out of a run."""
    return ManifestReview.objects.filter(run=run_id, job__finished_at=None).select_related("job").first()


def reckon(run_id: int) -> bool:
    """Count what remains of a run and fix its root, outside of any lock; False where more was exempted meanwhile, or a bulk
    job has not ended yet."""
    run = CleanupRun.objects.get(pk=run_id)
    if run.remaining_root:
        return True
    if under_review(run_id) is not None:
        return False
    root, count = remaining(run)
    reviewed = CleanupRun.objects.filter(pk=run_id, exempt_count=run.exempt_count, remaining_root="")
    with transaction.atomic():
        # In one statement under its condition: whoever exempts more has changed the number, or waits and changes it.
        changed = reviewed.filter(state=RunState.NEEDS_APPROVAL).update(remaining_root=root, remaining_count=count)
        if changed:
            after = {"remaining_root": root, "remaining": count, "exempt": run.exempt_count}
            audit.record(action="run.remaining", subject=run, by=None, after=after)
    log.info("what remains is counted", run=run.key, items=count, exempt=run.exempt_count, current=bool(changed))
    return bool(changed)


def remaining(run: CleanupRun) -> tuple[str, int]:
    """The root and number of the items that are not exempted."""
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "remaining_parts.sql"), {"run": run.pk})
        touched = {number: (first, last) for number, first, last in cursor.fetchall()}
        root, count = sha256(), 0
        parts = run.parts.order_by("number").values_list("number", "digest", "item_count")
        for number, digest, items in parts.iterator(chunk_size=1000):
            if number in touched:
                first, last = touched[number]
                stretch = {"run": run.pk, "first": first, "last": last}
                cursor.execute(sqlfiles.read(__file__, "remaining.sql"), stretch)
                digest, items = cursor.fetchone()
            root.update(bytes.fromhex(digest))
            count += items
    return root.hexdigest(), count


def reckon_unfinished() -> int:
    """Count what remains of runs whose review was cut short; returns how many."""
    waiting = CleanupRun.objects.filter(state=RunState.NEEDS_APPROVAL, remaining_root="").order_by("pk")
    return sum(reckon(pk) for pk in waiting.values_list("pk", flat=True))
