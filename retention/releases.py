"""The release of a legal hold: one person requests it, another approves or denies it. Nothing else ends a hold.

A release destroys nothing and changes no command: what was held returns to its schedule, and passes a new run.
"""

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from cleanup_project.base import apitokens, audit, clock, tenancy
from cleanup_project.base.canonical import instant
from cleanup_project.base.models import User
from retention import control
from retention.exceptions import NotPermitted, RetentionError
from retention.models import HoldRelease, LegalHold
from webhooks.outbox import Notice, emit

Decision = HoldRelease.Decision


def request(*, hold: LegalHold, by: User, reason: str) -> HoldRelease:
    """Ask for a hold's release; the hold stays in force. Raises NotPermitted, RetentionError."""
    require(by, "place_hold", "request the release of legal holds")
    tenancy.permit(by, hold, NotPermitted)
    if not reason.strip():
        raise RetentionError("State a reason for the release.")
    with transaction.atomic():
        hold = locked(hold.pk)
        if hold.released_at is not None:
            raise RetentionError(f"Hold {hold} is released already.")
        if hold.releases.open().exists():
            raise RetentionError(f"The release of hold {hold} is requested already: it waits for another person.")
        release = HoldRelease.objects.create(hold=hold, requested_by=by, reason=reason)
        audit.record(action="hold.release_requested", subject=hold, by=by, reason=reason, after={"release": release.pk})
    return release


def approve(
    *, release: HoldRelease, by: User, reason: str, matter: str, impact: Mapping[str, Any] | None = None
) -> HoldRelease:
    """Release the hold. `matter` is the hold's, typed by whoever approves; `impact` the figures that they saw.

    Raises NotPermitted for whoever asked, RetentionError where it is decided already or the matter is another.
    """
    with transaction.atomic():
        release = open_to(release, by, reason)
        if matter != release.hold.matter:
            raise RetentionError("This is not the matter of the hold: type it exactly as it is shown.", field="matter")
        decide(release, Decision.APPROVED, by, reason, impact)
        LegalHold.objects.filter(pk=release.hold_id).update(released_at=release.decided_at)
        control.bump(release.hold.tenant_id)
        record("hold.released", release)
        emit(release.hold.tenant.code, [notice(release)], at=clock.now())
    return release


def deny(*, release: HoldRelease, by: User, reason: str, impact: Mapping[str, Any] | None = None) -> HoldRelease:
    """Let the hold stay in force. Its release may be requested again. Raises as `approve` does."""
    with transaction.atomic():
        release = open_to(release, by, reason)
        decide(release, Decision.DENIED, by, reason, impact)
        record("hold.release_denied", release)
    return release


def open_to(release: HoldRelease, by: User, reason: str) -> HoldRelease:
    """The request as it is now, its hold locked, if this person may decide it."""
    require(by, "approve_release", "decide on the release of legal holds")
    tenancy.permit(by, release.hold, NotPermitted)
    if not reason.strip():
        raise RetentionError("State a reason for your decision.")
    hold = locked(release.hold_id)
    release = HoldRelease.objects.select_related("requested_by").get(pk=release.pk)
    release.hold = hold
    if release.decision:
        raise RetentionError(f"The {release} is {release.decision} already.")
    if own := apitokens.behind(release.requested_by, by):
        raise NotPermitted(f"The {release} was requested by {own}: a second person must decide.")
    return release


def decide(release: HoldRelease, decision: Decision, by: User, reason: str, impact: Mapping[str, Any] | None) -> None:
    release.decision, release.decided_by, release.decided_at = decision.value, by, clock.now()
    release.decision_reason, release.impact = reason, dict(impact) if impact else None
    release.save(update_fields=["decision", "decided_by", "decided_at", "decision_reason", "impact"])


def record(action: str, release: HoldRelease) -> None:
    audit.record(
        action=action,
        subject=release.hold,
        by=release.decided_by,
        reason=release.decision_reason,
        after={"release": release.pk, "requested_by": release.requested_by.get_username()},
    )


def notice(release: HoldRelease) -> Notice:
    """That a hold was released; why, and by whom, stands in the audit record."""
    hold = release.hold
    data = {"hold": hold.pk, "placed_at": instant(hold.placed_at), "release": release.pk}
    return Notice(type="hold.released", subject=f"hold:{hold.pk}", name=str(hold.pk), data=data)


def locked(hold_id: int) -> LegalHold:
    """The hold, locked: its row orders requests and decisions."""
    return LegalHold.objects.select_for_update(no_key=True).get(pk=hold_id)


def require(by: User, right: str, words: str) -> None:
    if not by.has_perm(f"base.{right}"):
        raise NotPermitted(f"{by} may not {words}: no role of theirs has the right {right}.")
