"""What a draft would change: counted with the rule that scans use, before anybody publishes it.

The draft is judged as if it were in force already, beside what is published, and compared with what is published alone: at
one instant, and 30 and 90 days later. An estimate comes from a sample of the catalogue's blocks; the exact figures from
reading the whole scope in key order, a page a transaction, so that a crash or a slice's end costs nothing. What changes in
the catalogue while it is read may or may not be counted.
"""

import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final

import structlog
from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from cleanup_project.base import clock, queue, tenancy
from cleanup_project.base.models import User
from retention import governing, impact, scan, stretches
from retention.exceptions import NotPermitted, RetentionError
from retention.governing import Governing
from retention.impact import Figures
from retention.lengthening import ITS_OWN
from retention.models import ImpactPreview, PolicyRevision
from retention.stretches import Stretch

log = structlog.get_logger(__name__)

PAGE: Final = 5000  # rows of the catalogue read in a transaction
SMALL = 10_000  # a catalogue of so many rows is counted at once
SAMPLE: Final = 2000  # rows that an estimate reads
HORIZONS: Final = (timedelta(0), timedelta(days=30), timedelta(days=90))
VALID: Final = timedelta(hours=72)
BEFORE_ALL: Final = datetime.min.replace(tzinfo=UTC)
# What a revision says, as far as a person wrote it.
SAID: Final = tuple(
    field.name
    for field in PolicyRevision._meta.concrete_fields
    if field.name not in (ITS_OWN - {"effective_from", "retroactive"}) | {"policy", "tenant"}
)


def said(revision: PolicyRevision) -> dict[str, Any]:
    """What a revision says, ready for JSON."""
    values = {name: getattr(revision, name) for name in SAID}
    return {
        name: value if value is None or isinstance(value, str | int | list) else value.isoformat()
        for name, value in values.items()
    }


def digest_of(revision: PolicyRevision) -> str:
    """Of what a draft says, and of which other revisions are published and which policies suspended beside it."""
    rows = PolicyRevision.objects.filter(tenant=revision.tenant_id, published_at__isnull=False, policy__erasure=False)
    states = rows.order_by("pk").values_list("pk", "policy__suspended_at")
    beside = [[pk, suspended is not None] for pk, suspended in states]
    whole = {"policy": revision.policy_id, "said": said(revision), "beside": beside}
    return sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def request(*, revision: PolicyRevision, by: User) -> ImpactPreview:
    """Begin a preview of a draft: its estimate is there when this returns, and the exact figures where that is little work.

    Raises NotPermitted for who may neither draft nor publish, RetentionError for what is no draft.
    """
    if not (by.has_perm("base.draft_policy") or by.has_perm("base.publish_policy")):
        raise NotPermitted(f"{by} may not preview drafts: that needs the right draft_policy or publish_policy.")
    tenancy.permit(by, revision, NotPermitted)
    revision = PolicyRevision.objects.select_related("policy", "tenant").get(pk=revision.pk)
    if revision.published_at is not None:
        raise RetentionError(f"{revision} is published already: only a draft has a preview.")
    small = catalogue_is_small()
    with transaction.atomic():
        row = begin(revision, by, sample=not small)
        if not small:
            queue.wake("retention.tasks.preview", row.pk)
    while small and not count_page(row.pk):
        pass
    row.refresh_from_db()
    return row


def begin(revision: PolicyRevision, by: User, *, sample: bool) -> ImpactPreview:
    as_of = clock.now()
    question = Question.of(revision, as_of)
    sampled, estimate = estimated(question) if sample else (None, {})
    return ImpactPreview.objects.create(
        revision=revision,
        digest=digest_of(revision),
        as_of=as_of,
        requested_by=by,
        sampled=sampled,
        estimate=estimate,
        figures=impact.nothing(len(HORIZONS)),
        samples={},
        cursor={"stretch": 0, "after": None},
        expected=sum(scan.estimate(*stretch.counted()) for stretch in question.stretches),
    )


def required(revision: PolicyRevision) -> ImpactPreview:
    """The exact preview of exactly this draft that publishing stands on. Raises RetentionError where there is none."""
    newest = revision.previews.filter(state=ImpactPreview.State.EXACT).order_by("-id").first()
    if newest is None:
        running = revision.previews.filter(state=ImpactPreview.State.COUNTING).exists()
        raise RetentionError(
            f"The exact preview of {revision} is still being counted: wait until it has finished."
            if running
            else f"{revision} has no exact preview: preview it first, so that its effect is known."
        )
    if newest.digest != digest_of(revision):
        raise RetentionError(
            f"The preview of {revision} is of an earlier draft, or other policies were published, suspended or resumed "
            "since: preview it again."
        )
    if newest.as_of < clock.now() - VALID:
        raise RetentionError(f"The preview of {revision} is older than {VALID.days * 24} hours: preview it again.")
    return newest


@dataclass(frozen=True, slots=True)
class Question:
    """A draft and today's rules at each horizon, those of its own policy on either side, and all that these can cover."""

    tenant_id: int
    sides: impact.Sides
    own: Collection[Governing]
    stretches: Sequence[Stretch]

    @classmethod
    def of(cls, draft: PolicyRevision, as_of: datetime) -> "Question":
        """Rules that share no prefix with the policy's own change nothing and are left out."""
        times = [as_of + horizon for horizon in HORIZONS]
        today = [governing.of_tenant(draft.tenant, moment) for moment in times]
        chain = chain_with(draft)
        drafted = [
            [rule for rule in rules if rule.policy_id != draft.policy_id] + governing.in_force(chain, moment)
            for rules, moment in zip(today, times, strict=True)
        ]
        own = {rule for rules in (*today, *drafted) for rule in rules if rule.policy_id == draft.policy_id}
        ranges = list(stretches.of_rules(own))
        sides = impact.Sides(
            times,
            [[rule for rule in rules if meets(rule, ranges)] for rules in today],
            [[rule for rule in rules if meets(rule, ranges)] for rules in drafted],
        )
        return cls(draft.tenant_id, sides, own, ranges)

    def wanted(self) -> tuple[str, dict[str, Any]]:
        """What of a stretch can be judged by itself, as a condition."""
        covered, parameters = stretches.covered_by(self.own)
        return f"gone_at IS NULL AND standalone AND tenant_id = %(tenant)s AND ({covered})", {
            "tenant": self.tenant_id,
            **parameters,
        }


def chain_with(draft: PolicyRevision) -> list[PolicyRevision]:
    """The revisions of the draft's policy that are published, and the draft as if it had always been in force."""
    assumed = PolicyRevision.objects.select_related("policy").get(pk=draft.pk)
    assumed.in_force_from = BEFORE_ALL
    published = PolicyRevision.objects.filter(policy=draft.policy, published_at__isnull=False)
    return [*published.select_related("policy"), assumed]


def meets(rule: Governing, ranges: Sequence[Stretch]) -> bool:
    return any(rule.meets(stretch.bucket_id, stretch.prefix) for stretch in ranges)


def catalogue_is_small() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) <= %s FROM (SELECT FROM retention_objectversion LIMIT %s) found", [SMALL, SMALL + 1]
        )
        return bool(cursor.fetchone()[0])


def estimated(question: Question) -> tuple[int, Figures]:
    """(objects of the scope that were sampled, figures scaled up), from about SAMPLE rows in blocks taken at random."""
    where, parameters = question.wanted()
    within = list[str]()
    for number, stretch in enumerate(question.stretches):
        condition, values = stretch.condition()
        within.append(condition.replace("%(", f"%(stretch_{number}_"))
        parameters |= {f"stretch_{number}_{name}": value for name, value in values.items()}
    with connection.cursor() as cursor:
        cursor.execute("SELECT greatest(reltuples, 0) FROM pg_class WHERE oid = 'retention_objectversion'::regclass")
        percent = min(100.0, 100.0 * SAMPLE / max(cursor.fetchone()[0], SAMPLE))
        cursor.execute(
            f"""
            SELECT coalesce(array_agg(id), '{{}}')::text, count(*)
            FROM retention_objectversion TABLESAMPLE SYSTEM (%(percent)s)
            WHERE {where} AND (({") OR (".join(within)}))
            """,  # noqa: S608 - composed of our own literals
            parameters | {"percent": percent},
        )
        ids, sampled = cursor.fetchone()
    figures, _samples = impact.judged(ids, question.sides)
    return sampled, impact.scaled(figures, 100.0 / percent)


def count_slice(preview_id: int, *, budget_seconds: float) -> bool:
    """Count pages of a preview for so long; whether there is nothing left to count."""
    until = time.monotonic() + budget_seconds
    while not count_page(preview_id):
        if time.monotonic() > until:
            return False
    return True


def count_page(preview_id: int) -> bool:
    """Count the next page in one transaction; whether that was all. Only the row's lock decides who counts it."""
    with transaction.atomic():
        rows = ImpactPreview.objects.select_for_update(no_key=True).filter(pk=preview_id)
        row = rows.filter(state=ImpactPreview.State.COUNTING).first()
        if row is None:
            return True
        draft = PolicyRevision.objects.select_related("policy", "tenant").get(pk=row.revision_id)
        if draft.published_at is not None or digest_of(draft) != row.digest:
            finish(row, ImpactPreview.State.OVERTAKEN)
            return True
        question = Question.of(draft, row.as_of)
        if row.cursor["stretch"] >= len(question.stretches):
            finish(row, ImpactPreview.State.EXACT)
            return True
        count(row, question)
        return False


def count(row: ImpactPreview, question: Question) -> None:
    """Read one page, judge it by both sides, and add it up. Called under the preview's lock."""
    stretch = question.stretches[row.cursor["stretch"]]
    read = stretches.page(stretch, *question.wanted(), row.cursor["after"], PAGE)
    figures, samples = impact.judged(read.ids, question.sides)
    row.figures = impact.added(row.figures, figures)
    row.samples = impact.joined(row.samples, samples)
    whole = read.rows < PAGE
    row.cursor = {"stretch": row.cursor["stretch"] + whole, "after": None if whole else read.end}
    row.read = F("read") + read.rows
    row.progressed_at = Now()
    row.save(update_fields=["figures", "samples", "cursor", "read", "progressed_at"])


def finish(row: ImpactPreview, state: ImpactPreview.State) -> None:
    ImpactPreview.objects.filter(pk=row.pk).update(state=state, finished_at=Now(), progressed_at=Now())
    log.info("preview finished", preview=row.pk, revision=str(row.revision), state=state, read=row.read)


def unfinished() -> list[int]:
    """Previews that nobody has gone on with for a minute."""
    counting = ImpactPreview.objects.filter(state=ImpactPreview.State.COUNTING)
    return list(counting.filter(progressed_at__lt=Now() - queue.TICK_EVERY).order_by("pk").values_list("pk", flat=True))
