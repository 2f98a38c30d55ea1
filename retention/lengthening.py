"""Does a change of a policy provably only lengthen or narrow? Pure, and careful: what cannot be proven is not so.

Proven means: whatever is eligible under the revisions after the change was eligible under those before it, at the same
instant, and is destroyed under rules that are no looser. Two revisions are compared wherever one takes the other's place.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from retention.duedate import DAYS_IN, MONTHS_IN
from retention.governing import Governing, in_force
from retention.models import PolicyRevision
from retention.models.scope import ANY_CLASS

# The least and the most days in so many consecutive months, from any day on, clamped at month ends or not.
LEAST_DAYS: Final = (0, 28, 59, 89, 120, 150, 181, 212, 242, 273, 303, 334)
MOST_DAYS: Final = (0, 31, 62, 92, 123, 153, 184, 215, 245, 276, 306, 337)

# How a revision came about says nothing of what it does; when and for what it governs is compared by its place.
ITS_OWN: Final = frozenset({
    "id", "number", "author", "created_at", "editor_ids", "submitted_by", "submitted_at", "published_by", "published_at",
    "only_lengthens", "in_force_from", "effective_from", "retroactive",
})  # fmt: skip
CLOCK: Final = frozenset({"period_number", "period_unit"})
SCOPE: Final = frozenset({"bucket_ids", "prefixes", "retention_classes"})
WINDOW: Final = frozenset({"window_days", "window_start", "window_end", "window_zone"})

# Fields that may change in one direction: whether (old, new) is no looser. Every other field must stay as it was.
NO_LOOSER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "keep_newest": lambda old, new: new >= old,
    "retain_permanently": lambda old, new: new or not old,
    "remove_expired_markers": lambda old, new: old or not new,
    "authorisation": lambda old, new: new == PolicyRevision.Authorisation.APPROVAL or new == old,
    "already_absent": lambda old, new: new == PolicyRevision.AlreadyAbsent.REVIEW or new == old,
    "cooling_off_minutes": lambda old, new: new >= old,
    "cap_objects": lambda old, new: new <= old,
    "cap_bytes": lambda old, new: new <= old,
    "cap_share_percent": lambda old, new: new <= old,
    "evidence_max_age_hours": lambda old, new: new <= old,
    "priority": lambda old, new: new >= old,
}


def only_lengthens(
    published: Sequence[PolicyRevision], new: PolicyRevision, others: Sequence[Governing], now: datetime
) -> bool:
    """Whether putting `new` in force, beside or instead of what is published of its policy, only lengthens or narrows.

    `others` are the rules of the tenant's other policies, now or later: what leaves the scope must not fall to them.
    """
    after = [*published, new]
    begins = {each.in_force_from for each in after if each.in_force_from is not None}
    revisions = {each.pk: each for each in after}
    for as_of in sorted({now, *(begin for begin in begins if begin > now)}):
        for old, replacing in places(in_force(published, as_of), in_force(after, as_of)):
            if old is None:
                return False
            if replacing is not None and replacing.revision_id == old.revision_id:
                continue
            if leaves(old, replacing) and any(overlap(old, other) for other in others):
                return False
            if replacing is not None and not no_looser(revisions[old.revision_id], revisions[replacing.revision_id]):
                return False
    return True


def places(
    before: Sequence[Governing], after: Sequence[Governing]
) -> Iterator[tuple[Governing | None, Governing | None]]:
    """For each stretch of stored-at times: which rule of the policy governs it, before and after; never neither."""
    edges = {edge for rule in (*before, *after) for edge in (rule.stored_from, rule.stored_to) if edge is not None}
    for begin in (None, *sorted(edges)):
        pair = tuple(next((rule for rule in rules if governs(rule, begin)), None) for rules in (before, after))
        if pair != (None, None):
            yield pair[0], pair[1]


def governs(rule: Governing, begin: datetime | None) -> bool:
    """Whether the rule governs what was stored from `begin` on, up to the next edge; None is before the first."""
    return rule.stored_from is None if begin is None else rule.governs(begin)


def no_looser(old: PolicyRevision, new: PolicyRevision) -> bool:
    """Whether everything that both cover becomes eligible no earlier under the new one, and is destroyed no more freely."""
    exempt = ITS_OWN | CLOCK | SCOPE | WINDOW
    names = [field.attname for field in PolicyRevision._meta.concrete_fields if field.name not in exempt]
    return (
        within(new, old)
        and (new.retain_permanently or no_shorter(new, old))
        and all(NO_LOOSER.get(name, same)(getattr(old, name), getattr(new, name)) for name in names)
        and (same_window(old, new) or unrestricted(old))
    )


def same(old: Any, new: Any) -> bool:
    return bool(old == new)


def same_window(old: PolicyRevision, new: PolicyRevision) -> bool:
    return all(getattr(old, name) == getattr(new, name) for name in WINDOW)


def unrestricted(revision: PolicyRevision) -> bool:
    """Whether it destroys at any time of the week, so that any window is a narrower one."""
    return not revision.window_days and revision.window_start is None


def no_shorter(new: PolicyRevision, old: PolicyRevision) -> bool:
    """Whether the new period is at least the old one, whatever the day that it is counted from."""
    if new.period_unit in MONTHS_IN and old.period_unit in MONTHS_IN:
        return months_of(new) >= months_of(old)
    return least_days(new) >= most_days(old)


def months_of(revision: PolicyRevision) -> int:
    return revision.period_number * MONTHS_IN[revision.period_unit]


def least_days(revision: PolicyRevision) -> int:
    if revision.period_unit in DAYS_IN:
        return revision.period_number * DAYS_IN[revision.period_unit]
    years, months = divmod(months_of(revision), 12)
    return years * 365 + LEAST_DAYS[months]


def most_days(revision: PolicyRevision) -> int:
    if revision.period_unit in DAYS_IN:
        return revision.period_number * DAYS_IN[revision.period_unit]
    years, months = divmod(months_of(revision), 12)
    return years * 366 + MOST_DAYS[months]


def within(new: PolicyRevision, old: PolicyRevision) -> bool:
    """Whether the new scope is the old one or a part of it."""
    return (
        set(new.bucket_ids) <= set(old.bucket_ids)
        and all(prefix.startswith(tuple(old.prefixes)) for prefix in new.prefixes)
        and (ANY_CLASS in old.retention_classes or set(new.retention_classes) <= set(old.retention_classes))
    )


def leaves(old: Governing, replacing: Governing | None) -> bool:
    """Whether anything that the old rule covers is not covered by the one that takes its place."""
    return (
        replacing is None
        or not set(old.bucket_ids) <= set(replacing.bucket_ids)
        or not all(prefix.startswith(replacing.prefixes) for prefix in old.prefixes)
        or not (
            ANY_CLASS in replacing.retention_classes or set(old.retention_classes) <= set(replacing.retention_classes)
        )
        or (old.remove_expired_markers and not replacing.remove_expired_markers)
    )


def overlap(one: Governing, other: Governing) -> bool:
    """Whether any object can be in both scopes."""
    return (
        bool(set(one.bucket_ids) & set(other.bucket_ids))
        and any(
            mine.startswith(theirs) or theirs.startswith(mine) for mine in one.prefixes for theirs in other.prefixes
        )
        and (
            ANY_CLASS in (*one.retention_classes, *other.retention_classes)
            or bool(set(one.retention_classes) & set(other.retention_classes))
        )
    )
