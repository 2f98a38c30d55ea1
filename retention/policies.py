"""Policies and their revisions, the only place that writes them: draft, edit, submit, publish; suspend, resume, reschedule.

Saving is not publishing: a draft changes nothing. It is submitted, its impact is counted, and a second person publishes it
or sends it back; a published revision never changes.
"""

from collections.abc import Mapping
from copy import copy
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Max, Model
from django.db.models.functions import Now

from cleanup_project.base import audit, clock, tenancy
from cleanup_project.base.models import User
from retention import control, governing, preview
from retention.exceptions import NotPermitted, RetentionError
from retention.lengthening import only_lengthens
from retention.models import ImpactPreview, PolicyRevision, RetentionPolicy, Tenant


def create(*, tenant: Tenant, code: str, by: User, schedule: str = "0 1 * * *") -> RetentionPolicy:
    """A new policy without any revision: it covers nothing until one is published."""
    require(by, "draft_policy", "draft policies", tenant)
    policy = RetentionPolicy(tenant=tenant, code=code, schedule=schedule)
    policy.full_clean()
    with transaction.atomic():
        policy.save()
        audit.record(action="policy.created", subject=policy, by=by, after={"schedule": schedule})
    return policy


def draft(*, policy: RetentionPolicy, by: User, **fields: Any) -> PolicyRevision:
    """A draft of the policy's next revision; `fields` are what it says. It changes nothing until published.

    Raises TypeError for anything that is not part of what a revision says.
    """
    require(by, "draft_policy", "draft policies", policy)
    refuse_unsaid(fields)
    with transaction.atomic():
        # The policy's row orders two drafts, so that each gets a number of its own.
        locked = RetentionPolicy.objects.select_for_update(no_key=True).get(pk=policy.pk)
        if locked.erasure:
            raise RetentionError(f"{policy} belongs to an urgent erasure: it says what was erased, and nothing more.")
        newest = policy.revisions.aggregate(newest=Max("number"))["newest"] or 0
        revision = PolicyRevision(policy=policy, tenant=policy.tenant, number=newest + 1, author=by, **fields)
        revision.full_clean()
        revision.save()
        audit.record(action="policy.drafted", subject=revision, by=by)
    return revision


def edit(*, revision: PolicyRevision, by: User, **fields: Any) -> PolicyRevision:
    """Change a draft. It must be submitted and previewed anew, and who changed it may not be its second person.

    Raises RetentionError for a published revision, TypeError for anything that is not part of what a revision says.
    """
    require(by, "draft_policy", "edit drafts", revision)
    refuse_unsaid(fields)
    with transaction.atomic():
        revision = locked_draft(revision)
        before = preview.said(revision)
        for name, value in fields.items():
            setattr(revision, name, value)
        if by.pk not in drafters(revision):
            revision.editor_ids = [*revision.editor_ids, by.pk]
        revision.submitted_at = revision.submitted_by = None
        revision.full_clean()
        revision.save()
        revision.refresh_from_db()
        after = preview.said(revision)
        changed = [name for name in after if after[name] != before[name]]
        audit.record(
            action="policy.edited",
            subject=revision,
            by=by,
            before={name: before[name] for name in changed},
            after={name: after[name] for name in changed},
        )
    return revision


def refuse_unsaid(fields: Mapping[str, Any]) -> None:
    """Who wrote, submitted and published a revision, and when, is for the verbs to say."""
    unknown = fields.keys() - set(preview.SAID)
    if unknown:
        raise TypeError(f"Not part of what a revision says: {', '.join(sorted(unknown))}.")


def discard(*, revision: PolicyRevision, by: User, reason: str) -> None:
    """Remove a draft and its previews; what it said stays in the audit record of its policy."""
    require(by, "draft_policy", "discard drafts", revision)
    need(reason, "for discarding the draft")
    with transaction.atomic():
        revision = locked_draft(revision)
        said = {"revision": str(revision), "author": str(revision.author), **preview.said(revision)}
        audit.record(action="policy.discarded", subject=revision.policy, by=by, reason=reason, before=said)
        revision.previews.all().delete()
        revision.delete()


def submit(*, revision: PolicyRevision, by: User) -> PolicyRevision:
    """Hand a draft over to whoever reviews and publishes it."""
    require(by, "draft_policy", "submit drafts", revision)
    with transaction.atomic():
        revision = locked_draft(revision)
        if revision.submitted_at is not None:
            raise RetentionError(f"{revision} is submitted already.")
        revision.submitted_at, revision.submitted_by = clock.now(), by
        revision.full_clean()
        revision.save(update_fields=["submitted_at", "submitted_by"])
        audit.record(action="policy.submitted", subject=revision, by=by)
    return revision


def send_back(*, revision: PolicyRevision, by: User, reason: str) -> PolicyRevision:
    """Return a submitted draft to its drafters."""
    require(by, "publish_policy", "send drafts back", revision)
    need(reason, "for sending it back")
    with transaction.atomic():
        revision = locked_draft(revision)
        if revision.submitted_at is None:
            raise RetentionError(f"{revision} is not submitted.")
        revision.submitted_at = revision.submitted_by = None
        revision.save(update_fields=["submitted_at", "submitted_by"])
        audit.record(action="policy.sent_back", subject=revision, by=by, reason=reason)
    return revision


def publish(*, revision: PolicyRevision, by: User, reason: str, digest: str | None = None) -> PolicyRevision:
    """Publish a revision for ever. Where anything may become eligible earlier by it, it comes into force after a delay.

    Takes a second person, unless it provably only lengthens or narrows, and an exact preview of exactly this draft.
    `digest` is of the draft as that person has read it (`preview.digest_of`); None: they have read this very one.
    Raises NotPermitted for who may not, else RetentionError, with what is missing.
    """
    require(by, "publish_policy", "publish policies", revision)
    need(reason, "for publishing it")
    with transaction.atomic():
        control.bump(revision.tenant_id)  # first: by its row the publications of a tenant wait for each other
        revision = locked_draft(revision)
        refuse_overtaken(revision)
        revision.published_at, revision.published_by = clock.now(), by
        revision.in_force_from = max(revision.published_at, revision.effective_from)
        revision.only_lengthens = lengthens(revision)
        if not revision.only_lengthens:
            if by.pk in drafters(revision):
                raise NotPermitted(f"{revision} was drafted or edited by {by}: a second person must publish it.")
            delay = timedelta(hours=revision.tenant.shortening_delay_hours)
            revision.in_force_from = max(revision.in_force_from, revision.published_at + delay)
        if revision.submitted_at is None:
            raise RetentionError(f"{revision} is not submitted: submit it first.")
        shown = preview.required(revision)
        if digest is not None and digest != shown.digest:
            raise RetentionError(f"{revision} was changed after this page was shown: open it again, and read it anew.")
        revision.full_clean()
        revision.save()
        audit.record(
            action="policy.published", subject=revision, by=by, reason=reason, after=publication(revision, shown)
        )
    return revision


def publication(revision: PolicyRevision, shown: ImpactPreview) -> dict[str, Any]:
    """What the audit record keeps of a publication: from when, and what was known of its effect."""
    assert revision.in_force_from is not None
    return {
        "in_force_from": revision.in_force_from.isoformat(),
        "only_lengthens": revision.only_lengthens,
        "preview": shown.pk,
        "as_of": shown.as_of.isoformat(),
        "figures": shown.figures,
    }


def lengthens(revision: PolicyRevision) -> bool:
    """Whether this revision, about to be published, provably only lengthens or narrows what is published."""
    assert revision.published_at is not None
    others = list[governing.Governing]()
    published = list[PolicyRevision]()
    for policy_id, revisions in governing.published_by_policy(revision.tenant_id).items():
        if policy_id == revision.policy_id:
            published = revisions
        else:
            others += governing.now_or_later(revisions, revision.published_at)
    return only_lengthens(published, revision, others, revision.published_at)


def would_lengthen(draft: PolicyRevision) -> bool:
    """Whether it would only lengthen or narrow, were it published now: then it takes no second person. Saves nothing."""
    now = clock.now()
    revision = copy(draft)
    revision.published_at, revision.in_force_from = now, max(now, draft.effective_from)
    return lengthens(revision)


def suspend(*, policy: RetentionPolicy, by: User, reason: str) -> RetentionPolicy:
    """From now on the policy destroys nothing, and what it covers is kept whatever other policies say."""
    require(by, "publish_policy", "suspend policies", policy)
    need(reason, "for the suspension")
    with transaction.atomic():
        control.bump(policy.tenant_id)
        changed = RetentionPolicy.objects.filter(pk=policy.pk, suspended_at=None).update(
            suspended_at=Now(), suspended_reason=reason, suspended_by=by, resumed_by=None
        )
        if not changed:
            raise RetentionError(f"{policy} is suspended already.")
        audit.record(action="policy.suspended", subject=policy, by=by, reason=reason)
    policy.refresh_from_db()
    return policy


def resume(*, policy: RetentionPolicy, by: User, reason: str) -> RetentionPolicy:
    """End a suspension. The policy destroys again, so it takes another person than the one who suspended it."""
    require(by, "publish_policy", "resume policies", policy)
    need(reason, "for resuming the policy")
    with transaction.atomic():
        control.bump(policy.tenant_id)
        policy = RetentionPolicy.objects.select_for_update(no_key=True).get(pk=policy.pk)
        if policy.suspended_at is None:
            raise RetentionError(f"{policy} is not suspended.")
        if policy.suspended_by_id == by.pk:
            raise NotPermitted(f"{policy} was suspended by {by}: a second person must resume it.")
        before = {"suspended_at": policy.suspended_at.isoformat(), "suspended_reason": policy.suspended_reason}
        policy.suspended_at, policy.suspended_reason, policy.resumed_by = None, "", by
        policy.save(update_fields=["suspended_at", "suspended_reason", "resumed_by"])
        audit.record(action="policy.resumed", subject=policy, by=by, reason=reason, before=before)
    return policy


def reschedule(*, policy: RetentionPolicy, schedule: str, missed_slots: str, by: User, reason: str) -> RetentionPolicy:
    """Change when runs are opened. Slots count from now: what the new schedule would have asked for earlier is not missed."""
    require(by, "publish_policy", "change schedules", policy)
    need(reason, "for the new schedule")
    with transaction.atomic():
        policy = RetentionPolicy.objects.select_for_update(no_key=True).get(pk=policy.pk)
        before = {"schedule": policy.schedule, "missed_slots": policy.missed_slots}
        after = {"schedule": schedule, "missed_slots": missed_slots}
        if before == after:
            raise RetentionError(f"{policy} has this schedule already.")
        policy.schedule, policy.missed_slots, policy.rescheduled_at = schedule, missed_slots, clock.now()
        policy.full_clean()
        policy.save(update_fields=["schedule", "missed_slots", "rescheduled_at"])
        audit.record(action="policy.rescheduled", subject=policy, by=by, reason=reason, before=before, after=after)
    return policy


def locked_draft(revision: PolicyRevision) -> PolicyRevision:
    """The draft as it is now, locked until the transaction ends. Raises RetentionError where it is one no longer."""
    rows = PolicyRevision.objects.select_related("policy", "tenant", "author")
    found = rows.select_for_update(no_key=True, of=("self", "policy")).filter(pk=revision.pk).first()
    if found is None:
        raise RetentionError(f"{revision} is there no longer: it was discarded.")
    if found.published_at is not None:
        raise RetentionError(f"{found} is published already, and never changes: draft a new revision.")
    return found


def refuse_overtaken(revision: PolicyRevision) -> None:
    """Raises RetentionError where a later revision is published: this one would be its predecessor after the event."""
    later = revision.policy.revisions.filter(number__gt=revision.number, published_at__isnull=False).first()
    if later is not None:
        raise RetentionError(f"{later} is published already: draft anew from it, and discard {revision}.")


def drafters(revision: PolicyRevision) -> set[int]:
    """Everybody who wrote any of it: none of them is its second person."""
    return {revision.author_id, *revision.editor_ids}


def require(by: User, right: str, words: str, about: Model) -> None:
    if not by.has_perm(f"base.{right}"):
        raise NotPermitted(f"{by} may not {words}: no role of theirs has the right {right}.")
    tenancy.permit(by, about, NotPermitted)


def need(reason: str, what: str) -> None:
    if not reason.strip():
        raise RetentionError(f"State a reason {what}.")
