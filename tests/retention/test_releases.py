"""The release of a hold takes two people, by the verbs and by the database; nothing else ends a hold."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from cleanup_project.base import clock, roles
from cleanup_project.base.models import AuditEvent, User
from retention import control, releases
from retention.exceptions import NotPermitted, RetentionError
from retention.models import Bucket, HoldRelease, LegalHold, Tenant
from tests import world

pytestmark = pytest.mark.django_db


@pytest.fixture
def second(person: Callable[..., User]) -> User:
    return person("second", roles.COMPLIANCE)


@pytest.fixture
def hold(tenant: Tenant, bucket: Bucket, compliance: User) -> LegalHold:
    return world.hold(tenant, bucket, "case/", by=compliance)


@pytest.fixture
def asked(hold: LegalHold, compliance: User) -> HoldRelease:
    return releases.request(hold=hold, by=compliance, reason="Settled")


def approve(asked: HoldRelease, by: User, **changed: Any) -> HoldRelease:
    said = {"reason": "Confirmed by counsel", "matter": "Doe v. Acme"}
    return releases.approve(release=asked, by=by, **(said | changed))


def in_force(hold: LegalHold) -> bool:
    return LegalHold.objects.in_force().filter(pk=hold.pk).exists()


def test_a_second_person_approves_and_the_hold_is_over(hold: LegalHold, asked: HoldRelease, second: User) -> None:
    assert in_force(hold)
    before = control.read(hold.tenant_id)[0]
    done = approve(asked, second, impact={"freed": 3})
    hold.refresh_from_db()
    asked.refresh_from_db()
    assert hold.released_at == asked.decided_at == done.decided_at
    assert (asked.decision, asked.decided_by, asked.decision_reason) == ("approved", second, "Confirmed by counsel")
    assert asked.impact == {"freed": 3}
    assert control.read(hold.tenant_id)[0] == before + 1
    event = AuditEvent.objects.get(action="hold.released")
    assert (event.actor, event.reason, event.subject_id) == (second, "Confirmed by counsel", str(hold.pk))
    assert event.after == {"release": asked.pk, "requested_by": "compliance"}


def test_a_denied_release_leaves_the_hold_and_may_be_asked_again(
    hold: LegalHold, asked: HoldRelease, compliance: User, second: User
) -> None:
    releases.deny(release=asked, by=second, reason="The appeal is open")
    assert in_force(hold)
    assert AuditEvent.objects.get(action="hold.release_denied").reason == "The appeal is open"
    with pytest.raises(RetentionError, match="is denied already"):
        approve(asked, second)
    approve(releases.request(hold=hold, by=compliance, reason="Appeal dismissed"), second)
    assert not in_force(hold)
    with pytest.raises(RetentionError, match="is released already"):
        releases.request(hold=hold, by=compliance, reason="Again")


def test_releasing_one_hold_leaves_the_others(
    hold: LegalHold, asked: HoldRelease, tenant: Tenant, bucket: Bucket, compliance: User, second: User
) -> None:
    other = world.hold(tenant, bucket, "case/", by=compliance)
    approve(asked, second)
    assert in_force(other)


def test_whoever_asked_cannot_decide(hold: LegalHold, asked: HoldRelease, compliance: User) -> None:
    with pytest.raises(NotPermitted, match="a second person must decide"):
        approve(asked, compliance)
    with pytest.raises(NotPermitted, match="a second person must decide"):
        releases.deny(release=asked, by=compliance, reason="No")
    assert in_force(hold)


def test_only_compliance_asks_and_decides(
    hold: LegalHold, compliance: User, manager: User, person: Callable[..., User]
) -> None:
    root = person("root", is_superuser=True)
    for outsider in (manager, root):
        with pytest.raises(NotPermitted, match="may not request"):
            releases.request(hold=hold, by=outsider, reason="R")
    asked = releases.request(hold=hold, by=compliance, reason="R")
    for outsider in (manager, root):
        with pytest.raises(NotPermitted, match="may not decide"):
            approve(asked, outsider)
        with pytest.raises(NotPermitted, match="may not decide"):
            releases.deny(release=asked, by=outsider, reason="R")


@pytest.mark.parametrize("typed", ["", "Doe v. acme", "Doe v. Acme ", "Doe"])
def test_the_matter_is_typed_exactly(typed: str, hold: LegalHold, asked: HoldRelease, second: User) -> None:
    with pytest.raises(RetentionError, match="type it exactly"):
        approve(asked, second, matter=typed)
    assert in_force(hold)


def test_both_state_a_reason(hold: LegalHold, compliance: User, second: User) -> None:
    with pytest.raises(RetentionError, match="State a reason for the release"):
        releases.request(hold=hold, by=compliance, reason=" ")
    asked = releases.request(hold=hold, by=compliance, reason="Settled")
    with pytest.raises(RetentionError, match="State a reason for your decision"):
        approve(asked, second, reason="\n")
    with pytest.raises(RetentionError, match="State a reason for your decision"):
        releases.deny(release=asked, by=second, reason="")
    for empty in (" ", ""):
        with pytest.raises(IntegrityError, match="release_reason"), transaction.atomic():
            HoldRelease.objects.create(
                hold=world.hold(hold.tenant, Bucket.objects.get(), "b/", by=compliance),
                requested_by=compliance,
                reason=empty,
            )


def test_one_request_is_open_at_a_time(hold: LegalHold, asked: HoldRelease, compliance: User) -> None:
    with pytest.raises(RetentionError, match="is requested already"):
        releases.request(hold=hold, by=compliance, reason="Again")
    with pytest.raises(IntegrityError, match="release_one_open"), transaction.atomic():
        HoldRelease.objects.create(hold=hold, requested_by=compliance, reason="Again")


def test_the_database_refuses_half_a_decision_and_a_decision_by_whoever_asked(
    asked: HoldRelease, compliance: User, second: User
) -> None:
    whole = {"decision": "denied", "decided_by": second, "decided_at": clock.now(), "decision_reason": "No"}
    row = HoldRelease.objects.filter(pk=asked.pk)
    for missing, value in (("decided_by", None), ("decided_at", None), ("decision_reason", " "), ("decision", "maybe")):
        with pytest.raises(IntegrityError, match="release_decided_whole"), transaction.atomic():
            row.update(**(whole | {missing: value}))
    with pytest.raises(IntegrityError, match="release_second_person"), transaction.atomic():
        row.update(**(whole | {"decided_by": compliance}))


def test_the_database_refuses_a_release_that_nobody_approved(
    hold: LegalHold, asked: HoldRelease, compliance: User, second: User
) -> None:
    row = LegalHold.objects.filter(pk=hold.pk)
    with pytest.raises(IntegrityError, match="nobody approved it"), transaction.atomic():
        row.update(released_at=clock.now())
    releases.deny(release=asked, by=second, reason="No")
    asked.refresh_from_db()
    with pytest.raises(IntegrityError, match="nobody approved it"), transaction.atomic():
        row.update(released_at=asked.decided_at)
    with pytest.raises(IntegrityError, match="in force when it is placed"), transaction.atomic():
        LegalHold.objects.create(**fields_of(hold), released_at=clock.now())


def test_an_approval_ends_its_own_hold_alone_and_at_its_own_time(
    hold: LegalHold, asked: HoldRelease, bucket: Bucket, compliance: User, second: User
) -> None:
    other, at = world.hold(hold.tenant, bucket, "b/", by=compliance), clock.now()
    HoldRelease.objects.filter(pk=asked.pk).update(
        decision="approved", decided_by=second, decided_at=at, decision_reason="Confirmed"
    )
    for row, when in ((other, at), (hold, clock.now())):
        with pytest.raises(IntegrityError, match="nobody approved it"), transaction.atomic():
            LegalHold.objects.filter(pk=row.pk).update(released_at=when)
    LegalHold.objects.filter(pk=hold.pk).update(released_at=at)
    assert (in_force(hold), in_force(other)) == (False, True)


def fields_of(hold: LegalHold) -> dict[str, Any]:
    return {
        field.name: getattr(hold, field.name)
        for field in LegalHold._meta.fields
        if field.name not in {"id", "placed_at", "released_at"}
    }


def test_a_hold_is_never_reopened_and_a_release_never_changed(
    hold: LegalHold, asked: HoldRelease, compliance: User, second: User
) -> None:
    row = HoldRelease.objects.filter(pk=asked.pk)
    for change in ({"reason": "Another"}, {"requested_by": second}):
        with pytest.raises(IntegrityError, match="can only be decided"), transaction.atomic():
            row.update(**change)
    approve(asked, second)
    for change in ({"decision_reason": "Another"}, {"decision": "denied"}, {"impact": {}}):
        with pytest.raises(IntegrityError, match="can only be decided"), transaction.atomic():
            row.update(**change)
    for change in ({"released_at": None}, {"released_at": clock.now()}, {"matter": "Roe"}):
        with pytest.raises(IntegrityError, match="can only be released"), transaction.atomic():
            LegalHold.objects.filter(pk=hold.pk).update(**change)
    for rows in (row, LegalHold.objects.filter(pk=hold.pk)):
        with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
            rows._raw_delete("default")
    with pytest.raises(IntegrityError, match="is released already"), transaction.atomic():
        HoldRelease.objects.create(hold=hold, requested_by=compliance, reason="Again")
    with pytest.raises(IntegrityError, match="before it is decided"), transaction.atomic():
        HoldRelease.objects.create(
            hold=world.hold(hold.tenant, Bucket.objects.get(), "b/", by=compliance), requested_by=compliance,
            reason="R", decision="approved", decided_by=second, decided_at=clock.now(), decision_reason="R",
        )  # fmt: skip
