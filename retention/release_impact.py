"""What the release of a hold would do now: what it frees, what other holds still cover, what becomes eligible at once.

Reads alone, in short transactions, up to a bound that the figures admit. Nothing here is destroyed or promised: what
becomes eligible waits for the next authorised run, which judges it again.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from django.db import connection, transaction

from cleanup_project.base import clock, sqlfiles
from cleanup_project.base.arrays import array
from cleanup_project.base.canonical import instant
from retention import coverage, governing, holds, scan
from retention.eligibility import Reason
from retention.governing import Governing
from retention.models import LegalHold, ObjectVersion

READ_AT_MOST: Final = 20_000
SECONDS: Final = 5
SAMPLES: Final = 5


@dataclass(slots=True)
class Impact:
    """Versions and bytes. `whole` is False where the bound was reached: then each figure means "at least"."""

    at: datetime
    whole: bool = True
    covered: int = 0
    covered_bytes: int = 0
    freed: int = 0
    freed_bytes: int = 0
    still_held: Counter[int] = field(default_factory=Counter)  # by the hold that goes on
    reasons: Counter[Reason] = field(default_factory=Counter)  # of what is freed, each by itself
    eligible: dict[int, int] = field(
        default_factory=dict
    )  # objects that nothing else keeps: bytes, with what goes along
    past_maximum: set[int] = field(default_factory=set)  # of these


def of_release(hold: LegalHold) -> Impact:
    """What would be so if this hold were not in force, as of now."""
    found = Impact(at=clock.now())
    rules = governing.of_tenant(hold.tenant, found.at)
    until, read = time.monotonic() + SECONDS, 0
    for page in coverage.pages(holds.facts_of(hold), coverage.PAGE):
        if page.ids:
            with transaction.atomic():
                add(found, hold, page, rules)
        read += page.read
        if read >= READ_AT_MOST or time.monotonic() > until:
            found.whole = False
            break
    return found


def add(found: Impact, hold: LegalHold, page: coverage.Page, rules: Sequence[Governing]) -> None:
    """One page of what the hold covers."""
    found.covered += len(page.ids)
    found.covered_bytes += page.bytes
    others = holds.covering(page.ids, hold.tenant_id, without=hold.pk)
    found.still_held.update(other for ids in others.values() for other in ids)
    freed = [pk for pk in page.ids if pk not in others]
    found.freed += len(freed)
    found.freed_bytes += sum(ObjectVersion.objects.filter(pk__in=freed).values_list("size", flat=True))
    reasons, eligible, past_maximum = judged(page.ids, hold, rules, found.at)
    found.reasons.update(reasons[pk] for pk in freed)
    found.eligible |= eligible
    found.past_maximum |= past_maximum


def judged(
    ids: Sequence[int], hold: LegalHold, rules: Sequence[Governing], as_of: datetime
) -> tuple[dict[int, Reason], dict[int, int], set[int]]:
    """Without the hold: why each covered version is kept, the bytes of each eligible object, and which are past maximum.

    With an object go its derivatives: another hold on one of them keeps it, and one that this hold covers has kept its
    original, wherever that is.
    """
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "judged_with.sql"), {"ids": array(ids)})
        subjects, derivatives = cursor.fetchone()
        judge, parameters = scan.judging(subjects, derivatives, rules, as_of, without=hold.pk)
        # As in freezing, the planner takes a thousand versions for a handful.
        cursor.execute("SET LOCAL enable_nestloop = off")
        tail = """
            SELECT
                v.id, v.reason, v.id = ANY (%(covered)s::bigint[]), v.size + coalesce(d.size, 0), d.covered,
                coalesce(v.since + r.destroy_within_days * interval '1 day' < %(as_of)s::timestamptz, false)
            FROM verdict v LEFT JOIN retention_policyrevision r ON r.id = v.revision_id LEFT JOIN (
                SELECT original_id, sum(size)::bigint AS size, bool_or(id = ANY (%(covered)s::bigint[])) AS covered
                FROM derivative GROUP BY original_id
            ) d ON d.original_id = v.id
        """
        cursor.execute(judge + tail, {**parameters, "covered": array(ids)})
        rows = [(pk, scan.REASONS[reason], *rest) for pk, reason, *rest in cursor.fetchall()]
        cursor.execute("SET LOCAL enable_nestloop = on")
    freed = [
        (pk, size, past) for pk, reason, own, size, along, past in rows if reason is Reason.ELIGIBLE and (own or along)
    ]
    past_maximum = {pk for pk, _size, past in freed if past}
    return {pk: reason for pk, reason, own, *_ in rows if own}, {pk: size for pk, size, _past in freed}, past_maximum


def as_json(found: Impact) -> dict[str, Any]:
    """The figures as they are kept with the decision."""
    matters = dict(LegalHold.objects.filter(pk__in=found.still_held).values_list("pk", "matter"))
    rows = ObjectVersion.objects.filter(pk__in=sorted(found.eligible)[:SAMPLES]).select_related("bucket").order_by("pk")
    return {
        "at": instant(found.at),
        "whole": found.whole,
        "covers": {"versions": found.covered, "bytes": found.covered_bytes},
        "frees": {"versions": found.freed, "bytes": found.freed_bytes},
        "still_held": [
            {"hold": pk, "matter": matters[pk], "versions": number} for pk, number in sorted(found.still_held.items())
        ],
        "freed_by_reason": {reason.value: found.reasons[reason] for reason in Reason if found.reasons[reason]},
        "eligible_at_once": {"objects": len(found.eligible), "bytes": sum(found.eligible.values())},
        "past_maximum": {"objects": len(found.past_maximum)},
        "samples": [{"bucket": row.bucket.name, "key": row.key, "version_id": row.version_id} for row in rows],
    }
