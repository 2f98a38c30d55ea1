"""What lies in a bucket without a policy, and what lies there for too long: looked for through the catalogue, in turns.

No index knows either, since both follow from the policies in force. A turn reads the bucket in key order until it has found
enough or its time is over, says how far it came, and can be gone on with from there.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.db import connection, transaction

from cleanup_project.base import clock
from retention import governing, scan, stretches
from retention.eligibility import Reason
from retention.governing import Governing
from retention.models import Bucket, ObjectVersion, PolicyRevision, Tenant
from retention.stretches import Stretch

FOUND: Final = 500  # shown in a turn
PAGE: Final = 5000  # rows read in a transaction
SECONDS: Final = 2.0  # for a turn
VERDICTS: Final = "SELECT id, reason, since, revision_id FROM verdict ORDER BY place"
# The end of its retention stands, whatever keeps it beyond that.
ENDED: Final = frozenset({Reason.HELD, Reason.ELIGIBLE})


class Verdict(NamedTuple):
    """What the rules say of one version, by scan's own statement."""

    reason: Reason
    since: datetime | None
    revision_id: int | None


@dataclass(slots=True)
class Line:
    """One version that belongs on the list. `due` is when it should have been gone at the latest, where that is known."""

    version: ObjectVersion
    verdict: Verdict
    due: datetime | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """Where to look, for what (a condition in SQL), and by which rules it is judged."""

    places: Sequence[Stretch]
    wanted: str
    parameters: Mapping[str, Any]
    rules: Sequence[Governing]
    now: datetime


@dataclass(slots=True)
class Turn:
    """What one turn found. `resume` is where to go on, as text; None once the whole bucket is read."""

    lines: list[Line] = field(default_factory=list)
    read: int = 0
    resume: str | None = None


def unscheduled(bucket: Bucket, tenant: Tenant | None = None, resume: str | None = None) -> Turn:
    """Objects that are present and that no policy in force covers; without a tenant, of every tenant and of none.

    Delete markers hold no content and derivatives travel with their originals: neither is listed.
    """
    now = clock.now()
    tenants = [tenant] if tenant else Tenant.objects.all()
    rules = [rule for each in tenants for rule in governing.of_tenant(each, now) if bucket.pk in rule.bucket_ids]
    wanted = "gone_at IS NULL AND standalone AND NOT is_delete_marker"
    if tenant:
        wanted += " AND tenant_id = %(tenant)s"

    parameters = {"tenant": tenant.pk if tenant else None}
    search = Search([Stretch(bucket.pk, "")], wanted, parameters, rules, now)
    return look(search, lambda verdict: verdict.reason is Reason.UNSCHEDULED, resume)


def past_maximum(bucket: Bucket, tenant: Tenant, resume: str | None = None) -> Turn:
    """Objects that should have been gone: more days after the end of their retention than the governing revision allows."""
    now = clock.now()
    rules = [rule for rule in governing.of_tenant(tenant, now) if bucket.pk in rule.bucket_ids]
    limits = maxima(rules)
    limited = [rule for rule in rules if rule.revision_id in limits]
    covered, parameters = stretches.covered_by(limited)
    wanted = f"gone_at IS NULL AND standalone AND tenant_id = %(tenant)s AND ({covered})"

    def belongs(verdict: Verdict) -> bool:
        due = latest(verdict.reason, verdict.since, limits.get(verdict.revision_id or 0))
        return due is not None and due < now

    places = [stretch for stretch in stretches.of_rules(limited) if stretch.bucket_id == bucket.pk]
    turn = look(Search(places, wanted, parameters | {"tenant": tenant.pk}, rules, now), belongs, resume)
    for line in turn.lines:
        line.due = latest(line.verdict.reason, line.verdict.since, limits[line.verdict.revision_id or 0])
    return turn


def maxima(rules: Sequence[Governing]) -> dict[int, timedelta]:
    """How long after the end of retention objects may be there, by revision; only where a revision says so."""
    rows = PolicyRevision.objects.filter(pk__in=[rule.revision_id for rule in rules], destroy_within_days__isnull=False)
    return {pk: timedelta(days=days) for pk, days in rows.values_list("pk", "destroy_within_days") if days is not None}


def latest(reason: Reason, since: datetime | None, limit: timedelta | None) -> datetime | None:
    """When the version should be gone at the latest; None while its retention has not ended, or without a maximum."""
    return since + limit if reason in ENDED and since is not None and limit is not None else None


def look(search: Search, belongs: Callable[[Verdict], bool], resume: str | None) -> Turn:
    """One turn, from `resume` on."""
    turn, until = Turn(), time.monotonic() + SECONDS
    place, after = json.loads(resume) if resume else (0, None)
    while place < len(search.places):
        with transaction.atomic():
            read = stretches.page(search.places[place], search.wanted, search.parameters, after, PAGE)
            verdicts = judged(read.ids, search.rules, search.now)
        turn.read += read.rows
        found = {pk: verdict for pk, verdict in verdicts.items() if belongs(verdict)}
        rows = ObjectVersion.objects.select_related("bucket", "tenant").in_bulk(list(found)[:FOUND])
        turn.lines += [Line(rows[pk], verdict) for pk, verdict in found.items() if pk in rows]
        if len(turn.lines) >= FOUND:
            del turn.lines[FOUND:]
            last = turn.lines[-1].version
            turn.resume = json.dumps([place, [last.key, last.version_id, last.incarnation]])
            return turn
        place, after = (place, read.end) if read.rows == PAGE else (place + 1, None)
        if time.monotonic() > until and place < len(search.places):
            turn.resume = json.dumps([place, after])
            return turn
    return turn


def judged(ids: str, rules: Sequence[Governing], now: datetime) -> dict[int, Verdict]:
    """The verdicts on these versions, in their order, without locks. Runs inside the caller's transaction."""
    judge, parameters = scan.judging(ids, scan.derivatives_of(ids), rules, now)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_nestloop = off")
        cursor.execute(judge + VERDICTS, parameters)
        rows = cursor.fetchall()
        cursor.execute("SET LOCAL enable_nestloop = on")
    return {pk: Verdict(scan.REASONS[reason], since, revision) for pk, reason, since, revision in rows}
