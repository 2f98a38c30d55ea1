"""Enforcement is asked for by one person and decided by another; one person switches it off."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django.test import Client

from cleanup_project.base import roles
from cleanup_project.base.models import AuditEvent, User
from retention import control, enforcement
from retention.exceptions import NotPermitted, RetentionError
from retention.models import Bucket, Enforcement, EnforcementRequest, Tenant
from tests.web import quick_pages, url  # noqa: F401
from tests.world import enforced

pytestmark = pytest.mark.django_db


@pytest.fixture
def asked(tenant: Tenant, bucket: Bucket, manager: User) -> EnforcementRequest:
    return enforcement.request(tenant=tenant, bucket=bucket, prefix="o/", by=manager, reason="Pilot")


def test_a_request_changes_nothing_until_another_person_approves_it(
    asked: EnforcementRequest, tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    assert enforcement.switched_on(tenant.pk) == []
    with pytest.raises(NotPermitted, match="a second person must decide"):
        enforcement.approve(request=asked, by=manager, reason="Mine")
    assert enforcement.switched_on(tenant.pk) == []
    row = enforcement.approve(request=asked, by=second_manager, reason="Read")
    assert enforcement.switched_on(tenant.pk) == [(bucket.pk, "o/")]
    assert (row.requested_by, row.approved_by, row.reason) == (manager, second_manager, "Pilot")
    with pytest.raises(RetentionError, match="has been approved already"):
        enforcement.deny(request=asked, by=second_manager, reason="Late")
    told = list(AuditEvent.objects.filter(action__startswith="enforcement").order_by("pk"))
    assert [(each.action, each.actor, each.reason) for each in told] == [
        ("enforcement.requested", manager, "Pilot"),
        ("enforcement.on", second_manager, "Read"),
    ]


def test_a_denied_request_changes_nothing_and_may_be_made_again(
    asked: EnforcementRequest, tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    with pytest.raises(NotPermitted, match="a second person"):
        enforcement.deny(request=asked, by=manager, reason="Mine")
    enforcement.deny(request=asked, by=second_manager, reason="Too wide")
    with pytest.raises(RetentionError, match="has been denied already"):
        enforcement.approve(request=asked, by=second_manager, reason="After all")
    assert enforcement.switched_on(tenant.pk) == []
    enforcement.request(tenant=tenant, bucket=bucket, prefix="o/", by=manager, reason="Again")


def test_it_takes_the_right_and_a_reason_at_each_step(
    asked: EnforcementRequest, tenant: Tenant, bucket: Bucket, second_manager: User, person: Callable[..., User]
) -> None:
    operator = person("operator", roles.OPERATOR)
    row = enforced(tenant, bucket, "p/", by=asked.requested_by, approver=second_manager)
    calls: list[Callable[..., Any]] = [
        lambda **said: enforcement.request(tenant=tenant, bucket=bucket, prefix="q/", **said),
        lambda **said: enforcement.approve(request=asked, **said),
        lambda **said: enforcement.deny(request=asked, **said),
        lambda **said: enforcement.switch_off(row=row, **said),
    ]
    for call in calls:
        with pytest.raises(NotPermitted, match="has the right publish_policy"):
            call(by=operator, reason="R")
        with pytest.raises(RetentionError, match="State a reason"):
            call(by=second_manager, reason=" ")
    assert enforcement.switched_on(tenant.pk) == [(bucket.pk, "p/")]


def test_one_request_for_a_prefix_is_pending_at_a_time_and_none_where_it_is_on(
    asked: EnforcementRequest, tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    with pytest.raises(ValidationError, match="pending already"):
        enforcement.request(tenant=tenant, bucket=bucket, prefix="o/", by=second_manager, reason="Too")
    with pytest.raises(IntegrityError, match="enforcement_request_once"), transaction.atomic():
        EnforcementRequest.objects.create(
            tenant=tenant, bucket=bucket, prefix="o/", requested_by=manager, reason="Behind the verb"
        )
    enforcement.approve(request=asked, by=second_manager, reason="Read")
    with pytest.raises(RetentionError, match="on already"):
        enforcement.request(tenant=tenant, bucket=bucket, prefix="o/", by=manager, reason="Again")


def test_one_person_switches_it_off_and_two_switch_it_on_again(
    asked: EnforcementRequest, tenant: Tenant, bucket: Bucket, manager: User, second_manager: User
) -> None:
    row = enforcement.approve(request=asked, by=second_manager, reason="Read")
    epoch, _stopped = control.read(tenant.pk)
    enforcement.switch_off(row=row, by=manager, reason="Pilot is over")
    assert enforcement.switched_on(tenant.pk) == []
    assert control.read(tenant.pk)[0] == epoch + 1
    with pytest.raises(RetentionError, match="off already"):
        enforcement.switch_off(row=row, by=manager, reason="Again")
    with pytest.raises(IntegrityError, match="only be switched off, once"), transaction.atomic():
        Enforcement.objects.filter(pk=row.pk).update(switched_off_at=None)
    enforced(tenant, bucket, "o/", by=manager, approver=second_manager)
    assert enforcement.switched_on(tenant.pk) == [(bucket.pk, "o/")]


def test_the_database_refuses_one_person_in_both_parts(
    asked: EnforcementRequest, manager: User, second_manager: User
) -> None:
    alone = {"decision": "approved", "decided_by": manager, "decided_at": Now(), "decision_reason": "Mine"}
    rows = EnforcementRequest.objects.filter(pk=asked.pk)
    with pytest.raises(IntegrityError, match="enforcement_request_second_person"), transaction.atomic():
        rows.update(**alone)
    with pytest.raises(IntegrityError, match="enforcement_request_decided_whole"), transaction.atomic():
        rows.update(decision="approved")
    row = {
        "request": asked, "tenant": asked.tenant, "bucket": asked.bucket, "prefix": "o/", "requested_by": manager,
        "reason": "R",
    }  # fmt: skip
    with pytest.raises(IntegrityError, match="needs an approved request"), transaction.atomic():
        Enforcement.objects.create(**row, approved_by=second_manager)
    rows.update(**alone | {"decided_by": second_manager})
    with pytest.raises(IntegrityError, match="needs an approved request"), transaction.atomic():
        Enforcement.objects.create(**row | {"prefix": ""}, approved_by=second_manager)
    for change in ({"prefix": ""}, {"decision": "denied"}):
        with pytest.raises(IntegrityError, match="can only be decided, once"), transaction.atomic():
            rows.update(**change)
    made = Enforcement.objects.create(**row, approved_by=second_manager)
    with pytest.raises(IntegrityError), transaction.atomic():
        Enforcement.objects.filter(pk=made.pk).update(approved_by=manager)
    for model in (Enforcement, EnforcementRequest):
        with pytest.raises(IntegrityError, match="append-only"), transaction.atomic():
            model.objects.all()._raw_delete("default")


def test_pages_ask_decide_and_switch_off(
    tenant: Tenant, bucket: Bucket, manager: User, second_manager: User, client: Client
) -> None:
    client.force_login(manager)
    said = {"tenant": tenant.pk, "bucket": bucket.pk, "prefix": " o/", "reason": "Pilot"}
    client.post(url(EnforcementRequest, "add"), said)
    row = EnforcementRequest.objects.get()
    assert (row.prefix, row.requested_by) == (" o/", manager)
    assert "pending already" in client.post(url(EnforcementRequest, "add"), said).content.decode()
    approve, change = url(EnforcementRequest, "approve", row.pk), url(EnforcementRequest, "change", row.pk)
    assert approve not in client.get(change).content.decode()
    assert client.post(approve, {"reason": "Mine"}).status_code == 403

    client.force_login(second_manager)
    assert approve in client.get(change).content.decode()
    assert "Pilot" in client.get(approve).content.decode()
    assert "is on." in client.post(approve, {"reason": "Read"}, follow=True).content.decode()
    assert approve not in client.get(change).content.decode()
    again = client.post(url(EnforcementRequest, "deny", row.pk), {"reason": "Late"}).content.decode()
    assert "has been approved already" in again
    made = Enforcement.objects.get()
    off = url(Enforcement, "switch_off", made.pk)
    assert off in client.get(url(Enforcement, "change", made.pk)).content.decode()
    client.post(off, {"reason": "Over"})
    assert enforcement.switched_on(tenant.pk) == []
    assert off not in client.get(url(Enforcement, "change", made.pk)).content.decode()


@pytest.mark.parametrize(("role", "status"), [(roles.OPERATOR, 403), (roles.AUDITOR, 403), (roles.COMPLIANCE, 302)])
def test_who_may_decide_and_switch_off(
    role: str,
    status: int,
    asked: EnforcementRequest,
    second_manager: User,
    tenant: Tenant,
    bucket: Bucket,
    person: Callable[..., User],
    client: Client,
) -> None:
    on = enforced(tenant, bucket, "p/", by=asked.requested_by, approver=second_manager)
    client.force_login(person("someone", role))
    assert client.post(url(EnforcementRequest, "deny", asked.pk), {"reason": "R"}).status_code == status
    assert client.post(url(Enforcement, "switch_off", on.pk), {"reason": "R"}).status_code == status
    assert client.get(url(EnforcementRequest, "add")).status_code == (403 if status == 403 else 200)
