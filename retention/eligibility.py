"""Is this object version eligible for destruction, and if not, why not: a pure function, with its reasons in words.

`sql/judge.sql` is the same rule for a page of the catalogue; a property-based test holds the two together.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from retention.duedate import due_at
from retention.governing import Governing
from retention.models.scope import ANY_CLASS


class Reason(StrEnum):
    """Why an object version is, or is not, eligible; the first that applies, in this order."""

    GONE = "gone"
    TRAVELS = "travels"
    UNSCHEDULED = "unscheduled"
    STANDS_BEHIND = "stands_behind"
    PERMANENT = "permanent"
    SUSPENDED = "suspended"
    AWAITING_EVENT = "awaiting_event"
    UNKNOWN_DATE = "unknown_date"
    NOT_YET = "not_yet"
    KEPT_NEWEST = "kept_newest"
    EXEMPT = "exempt"
    HELD = "held"
    ELIGIBLE = "eligible"


WORDS = {
    Reason.GONE: "It is no longer in the bucket.",
    Reason.TRAVELS: "It is a derivative: it goes when its original goes, and not by itself.",
    Reason.UNSCHEDULED: "No retention policy in force covers it.",
    Reason.STANDS_BEHIND: "It is a delete marker, and a version still stands behind it.",
    Reason.PERMANENT: "A policy that covers it retains it permanently.",
    Reason.SUSPENDED: "A policy that covers it is suspended.",
    Reason.AWAITING_EVENT: "A policy that covers it waits for a retention event.",
    Reason.UNKNOWN_DATE: "A policy that covers it counts from a date that is not known.",
    Reason.NOT_YET: "Its retention has not ended yet.",
    Reason.KEPT_NEWEST: "It is among the newest generations that a policy always keeps.",
    Reason.EXEMPT: "Somebody exempted it, or something that would go with it, from destruction.",
    Reason.HELD: "A legal hold covers it, or something that would go with it.",
    Reason.ELIGIBLE: "Its retention has ended and nothing keeps it.",
}


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """What the catalogue says about one object version or delete marker."""

    id: int
    tenant_id: int | None
    bucket_id: int
    key: str
    version_id: str
    retention_class: str
    series: str
    stored_at: datetime
    dated_at: datetime | None
    present: bool
    is_delete_marker: bool
    is_derivative: bool
    original_bucket_id: int | None = None
    original_key: str = ""
    original_version_id: str = ""

    def trigger(self, kind: str) -> datetime | None:
        """The date that starts the clock for this kind of trigger; None while it is not known."""
        return {"stored_at": self.stored_at, "dated_at": self.dated_at}.get(kind)


@dataclass(frozen=True, slots=True)
class HoldFacts:
    """A legal hold in force: its scope, and the half-open range of stored-at times that it covers."""

    id: int
    matter: str
    tenant_id: int
    bucket_ids: tuple[int, ...]
    prefixes: tuple[str, ...]
    retention_classes: tuple[str, ...]
    stored_from: datetime | None = None
    stored_to: datetime | None = None

    def covers(self, version: VersionFacts) -> bool:
        return (
            version.tenant_id == self.tenant_id
            and version.bucket_id in self.bucket_ids
            and (ANY_CLASS in self.retention_classes or version.retention_class in self.retention_classes)
            and version.key.startswith(self.prefixes)
            and (self.stored_from is None or version.stored_at >= self.stored_from)
            and (self.stored_to is None or version.stored_at < self.stored_to)
        )


@dataclass(frozen=True, slots=True)
class EventFacts:
    """A retention event: what happened when, to what, and from when until when that is known."""

    id: int
    event_type: str
    tenant_id: int
    bucket_ids: tuple[int, ...]
    prefixes: tuple[str, ...]
    retention_classes: tuple[str, ...]
    occurred_at: datetime
    posted_at: datetime
    withdrawn_at: datetime | None = None

    def known(self, as_of: datetime) -> bool:
        return self.posted_at <= as_of and (self.withdrawn_at is None or self.withdrawn_at > as_of)

    def covers(self, version: VersionFacts) -> bool:
        return (
            version.tenant_id == self.tenant_id
            and version.bucket_id in self.bucket_ids
            and (ANY_CLASS in self.retention_classes or version.retention_class in self.retention_classes)
            and version.key.startswith(self.prefixes)
        )


@dataclass(frozen=True, slots=True)
class DispositionFacts:
    """What somebody decided about one object version, and has not been ended. Without `until` it is an exemption."""

    id: int
    object_version_id: int
    until: datetime | None
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What else must be known to judge one version.

    `same_key`: every catalogued version and marker of the same bucket and key, gone ones too, itself included.
    `series`: present standalone versions of the same tenant and series, itself included. `derivatives`: present
    derivatives that name its key as their original's. `originals`: present versions of the original that it names.
    `dispositions`: those in force of it and of its derivatives. `events`: every one of the tenant that a policy waits for.
    """

    same_key: Sequence[VersionFacts] = ()
    series: Sequence[VersionFacts] = ()
    derivatives: Sequence[VersionFacts] = ()
    originals: Sequence[VersionFacts] = ()
    dispositions: Sequence[DispositionFacts] = ()
    events: Sequence[EventFacts] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """What one revision in force says about the version. `event` is what has started its clock, where it waits for one."""

    rule: Governing
    trigger_at: datetime | None
    eligible_since: datetime | None
    reason: Reason
    event: EventFacts | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, with everything that led to it. `governed_by` decides when its retention ends: the latest one does.

    `eligible_since` is that end, or the end of an extension beyond it. `dispositions` are those of any of the targets.
    """

    reason: Reason
    eligible_since: datetime | None = None
    governed_by: Governing | None = None
    findings: Sequence[Finding] = ()
    holds: Sequence[HoldFacts] = ()
    dispositions: Sequence[DispositionFacts] = ()
    targets: Sequence[VersionFacts] = field(default_factory=tuple)

    @property
    def eligible(self) -> bool:
        return self.reason is Reason.ELIGIBLE


def judge(
    version: VersionFacts,
    around: Surroundings,
    rules: Sequence[Governing],
    holds: Sequence[HoldFacts],
    as_of: datetime,
) -> Verdict:
    """Judge one version at `as_of`. Unknown dates, unresolved conflicts and suspended policies all mean: keep."""
    targets = (version, *coupled(version, around))
    covering = tuple(hold for hold in holds if any(hold.covers(target) for target in targets))
    named = {target.id for target in targets}
    decided = tuple(each for each in around.dispositions if each.object_version_id in named)
    extended = max((each.until for each in decided if each.until is not None), default=None)
    findings = tuple(
        find(rule, version, around, as_of)
        for rule in rules
        if rule.in_scope(version.tenant_id, version.bucket_id, version.key, version.retention_class)
        and rule.governs(version.stored_at)
        and (rule.remove_expired_markers or not version.is_delete_marker)
    )
    dated = [finding for finding in findings if finding.eligible_since is not None]
    last = max(dated, key=lambda finding: (finding.eligible_since, -finding.rule.policy_id), default=None)
    kept = {Reason.HELD} if covering else set[Reason]()
    if any(each.until is None for each in decided):
        kept.add(Reason.EXEMPT)
    if extended is not None and extended > as_of:
        kept.add(Reason.NOT_YET)
    return Verdict(
        reason=first_reason(version, around, findings, kept),
        eligible_since=later(last.eligible_since, extended) if last else None,
        governed_by=last.rule if last else None,
        findings=findings,
        holds=covering,
        dispositions=decided,
        targets=targets,
    )


def later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max((each for each in (one, other) if each is not None), default=None)


def first_reason(
    version: VersionFacts, around: Surroundings, findings: Sequence[Finding], kept: AbstractSet[Reason]
) -> Reason:
    """The first reason that applies, in the order of `Reason`; `kept` are those that no policy gives."""
    if not version.present:
        return Reason.GONE
    if version.is_derivative and not version.is_delete_marker and any(not o.is_delete_marker for o in around.originals):
        return Reason.TRAVELS
    if not findings:
        return Reason.UNSCHEDULED
    if version.is_delete_marker and any(other.present and not other.is_delete_marker for other in around.same_key):
        return Reason.STANDS_BEHIND
    reasons = {finding.reason for finding in findings} | kept
    return next(reason for reason in Reason if reason in reasons)


def find(rule: Governing, version: VersionFacts, around: Surroundings, as_of: datetime) -> Finding:
    """What one revision that covers the version says about it."""
    event = latest_event(rule, version, around.events, as_of)
    trigger_at = trigger_of(rule, version, around.events, as_of)
    if rule.retain_permanently:
        return Finding(rule, trigger_at, None, Reason.PERMANENT, event)
    if rule.suspended:
        return Finding(rule, trigger_at, None, Reason.SUSPENDED, event)
    if trigger_at is None:
        return Finding(rule, None, None, Reason.AWAITING_EVENT if rule.waits else Reason.UNKNOWN_DATE)
    since = due_at(trigger_at, number=rule.period_number, unit=rule.period_unit, cutoff=rule.cutoff)
    if since > as_of:
        return Finding(rule, trigger_at, since, Reason.NOT_YET, event)
    if not version.is_delete_marker and newer_generations(rule, version, around, as_of) < rule.keep_newest:
        return Finding(rule, trigger_at, since, Reason.KEPT_NEWEST, event)
    return Finding(rule, trigger_at, since, Reason.ELIGIBLE, event)


def trigger_of(
    rule: Governing, version: VersionFacts, events: Sequence[EventFacts], as_of: datetime
) -> datetime | None:
    """The date that starts the version's clock under this rule; None while it is not known."""
    if not rule.waits:
        return version.trigger(rule.trigger)
    event = latest_event(rule, version, events, as_of)
    return event.occurred_at if event else None


def latest_event(
    rule: Governing, version: VersionFacts, events: Sequence[EventFacts], as_of: datetime
) -> EventFacts | None:
    """Of the events that the rule waits for and that cover the version, the latest: the longest retention wins."""
    met = (
        each
        for each in events
        if rule.waits and each.event_type == rule.event_type and each.known(as_of) and each.covers(version)
    )
    return max(met, key=lambda each: (each.occurred_at, -each.id), default=None)


def newer_generations(rule: Governing, version: VersionFacts, around: Surroundings, as_of: datetime) -> int:
    """How many generations of the series, in the rule's scope, have a later trigger; an unknown date counts for none."""
    own = trigger_of(rule, version, around.events, as_of)
    return sum(
        1
        for other in around.series
        if rule.in_scope(other.tenant_id, other.bucket_id, other.key, other.retention_class)
        and (theirs := trigger_of(rule, other, around.events, as_of)) is not None
        and own is not None
        and theirs > own
    )


def coupled(original: VersionFacts, around: Surroundings) -> tuple[VersionFacts, ...]:
    """The derivatives that go with this exact version of an original, by (bucket, key, version id)."""
    if original.is_derivative or original.is_delete_marker:
        return ()
    found = (
        each for each in around.derivatives if not each.is_delete_marker and belongs(each, original, around.same_key)
    )
    return tuple(sorted(found, key=lambda each: (each.bucket_id, each.key.encode(), each.version_id.encode())))


def belongs(derivative: VersionFacts, original: VersionFacts, versions: Sequence[VersionFacts]) -> bool:
    """Whether a derivative was made from this version of its original, and surely from no other one.

    An explicit parent decides. Otherwise it was stored between this version and the next; LastModified has whole
    seconds, so a derivative or a sibling of the same second leaves it open, and an open question means: left alone.
    """
    if derivative.original_version_id:
        return derivative.original_version_id == original.version_id
    others = [version for version in versions if version.id != original.id]
    if original.stored_at > derivative.stored_at:
        return False
    if any(original.stored_at <= other.stored_at <= derivative.stored_at for other in others):
        return False
    return derivative.stored_at != original.stored_at or not any(o.stored_at < original.stored_at for o in others)
