"""The hold register as of any time: every hold that had been placed by then, and what was known of its release then."""

import csv
import io
import json
from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import transaction

from cleanup_project.base import audit, clock, tenancy
from cleanup_project.base.canonical import instant
from cleanup_project.base.csvcells import guarded
from cleanup_project.base.models import User
from retention.exceptions import NotPermitted, RetentionError
from retention.models import Bucket, HoldRelease, LegalHold

COLUMNS: Final = (
    "hold", "tenant", "matter", "title", "authority", "reason", "custodian", "buckets", "prefixes", "retention_classes",
    "stored_from", "stored_to", "placed_by", "placed_at", "state", "released_at", "release_requested_by",
    "release_reason", "release_approved_by", "approval_reason", "as_of",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """A hold as of a time. `release` is the approved one, if it was approved by then; else the hold was in force."""

    hold: LegalHold
    release: HoldRelease | None
    requested: HoldRelease | None

    @property
    def state(self) -> str:
        if self.release is not None:
            return "released"
        return "in force, release requested" if self.requested is not None else "in force"


def may_view(by: User) -> bool:
    return by.has_perm("retention.view_legalhold") or by.has_perm("base.read_everything")


def register(as_of: datetime, *, by: User) -> list[Entry]:
    """Every hold of this person's tenants placed by `as_of`, oldest first. Raises RetentionError for a time to come."""
    if as_of > clock.now():
        raise RetentionError("State a time that has passed: nobody knows which holds will be in force later.")
    seen = tenancy.scoped(LegalHold.objects.all(), by, "tenant__code")
    placed = seen.filter(placed_at__lte=as_of).select_related("tenant", "placed_by").order_by("pk")
    asked = HoldRelease.objects.filter(requested_at__lte=as_of).select_related("requested_by", "decided_by")
    approved: dict[int, HoldRelease] = {}
    waiting: dict[int, HoldRelease] = {}
    for each in asked:
        if each.decided_at is None or each.decided_at > as_of:
            waiting[each.hold_id] = each
        elif each.decision == HoldRelease.Decision.APPROVED:
            approved[each.hold_id] = each
    return [Entry(hold, approved.get(hold.pk), waiting.get(hold.pk)) for hold in placed]


def export(as_of: datetime, *, by: User) -> Generator[bytes]:
    """The register as CSV, line by line; the audit record is written before this returns."""
    if not may_view(by):
        raise NotPermitted(f"{by} may not read legal holds.")
    entries = register(as_of, by=by)
    with transaction.atomic():
        audit.record(
            action="hold.register_exported", subject=by, by=by, after={"as_of": instant(as_of), "holds": len(entries)}
        )
    return lines(entries, as_of)


def lines(entries: list[Entry], as_of: datetime) -> Generator[bytes]:
    names = dict(Bucket.objects.values_list("pk", "name"))
    yield line(COLUMNS)
    for entry in entries:
        yield line([guarded(cell) for cell in cells(entry, names, as_of)])


def line(values: Any) -> bytes:
    buffer = io.StringIO(newline="")
    csv.writer(buffer).writerow(values)
    return buffer.getvalue().encode()


def cells(entry: Entry, names: dict[int, str], as_of: datetime) -> list[str]:
    """In the order of COLUMNS. Lists are JSON, so that any prefix can be read back; times are UTC, empty if unknown."""
    hold, release, asked = entry.hold, entry.release, entry.release or entry.requested
    return [
        str(hold.pk),
        hold.tenant.code,
        hold.matter,
        hold.title,
        hold.authority,
        hold.reason,
        hold.custodian,
        json.dumps([names[pk] for pk in hold.bucket_ids]),
        json.dumps(hold.prefixes),
        json.dumps(hold.retention_classes),
        time_of(hold.stored_from),
        time_of(hold.stored_to),
        hold.placed_by.get_username(),
        time_of(hold.placed_at),
        entry.state,
        time_of(release.decided_at) if release else "",
        asked.requested_by.get_username() if asked else "",
        asked.reason if asked else "",
        release.decided_by.get_username() if release and release.decided_by else "",
        release.decision_reason if release else "",
        time_of(as_of),
    ]


def time_of(moment: datetime | None) -> str:
    return instant(moment) if moment else ""
