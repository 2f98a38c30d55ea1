"""The stop switch: who presses and lifts it, what the database refuses besides, and what workers read."""

from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django_q.models import OrmQ

from cleanup_project.base import alarms, clock, roles
from cleanup_project.base.models import Alarm, AuditEvent, User
from retention import control, policies
from retention.exceptions import NotPermitted, RetentionError
from retention.models import Bucket, Control, RetentionPolicy, StopSwitch, Tenant

pytestmark = pytest.mark.django_db
Scope = StopSwitch.Scope


@pytest.fixture
def other(db: None) -> Tenant:
    return Tenant.objects.create(code="other", name="Other")


@pytest.fixture
def policy(tenant: Tenant, manager: User) -> RetentionPolicy:
    return policies.create(tenant=tenant, code="originals", by=manager)


def press(by: User | None, scope: Scope = Scope.EVERYTHING, **target: Any) -> StopSwitch:
    return control.press(scope=scope, by=by, reason="Look first.", **target)


def epochs() -> dict[str, int]:
    return dict(Control.objects.values_list("tenant__code", "epoch"))


@pytest.mark.parametrize("role", roles.MATRIX)
def test_who_may_press_and_who_may_lift(role: str, person: Callable[..., User]) -> None:
    somebody = person("somebody", role)
    if role == roles.AUDITOR:
        with pytest.raises(NotPermitted, match="no role of theirs has the right stop"):
            press(somebody)
        return
    switch = press(somebody)
    assert (switch.pressed_by, switch.lifted_at) == (somebody, None)
    if role == roles.COMPLIANCE:
        assert control.lift(switch=switch, by=somebody, reason="Seen.").lifted_by == somebody
    else:
        with pytest.raises(NotPermitted, match="no role of theirs has the right rearm"):
            control.lift(switch=switch, by=somebody, reason="Seen.")
        assert StopSwitch.objects.active().exists()


def test_each_act_is_on_record_and_rings_for_its_report(compliance: User) -> None:
    switch = press(compliance)
    assert ("ledger.tasks.stop_pressed", (switch.pk,)) in [
        (message.task["func"], message.task["args"]) for message in OrmQ.objects.all()
    ]
    control.lift(switch=switch, by=compliance, reason="Seen.")
    told = AuditEvent.objects.filter(action__startswith="stop.").order_by("pk")
    assert list(told.values_list("action", "actor_name", "reason", "subject_label")) == [
        ("stop.pressed", "compliance", "Look first.", "everything"),
        ("stop.lifted", "compliance", "Seen.", "everything"),
    ]


def test_both_need_a_reason(compliance: User) -> None:
    with pytest.raises(ValidationError, match="State a reason for stopping"):
        control.press(scope=Scope.EVERYTHING, by=compliance, reason=" ")
    switch = press(compliance)
    with pytest.raises(RetentionError, match="State a reason for going on"):
        control.lift(switch=switch, by=compliance, reason=" ")
    assert epochs() == {}


def test_a_switch_names_exactly_what_its_scope_says(
    tenant: Tenant, bucket: Bucket, policy: RetentionPolicy, compliance: User
) -> None:
    targets: dict[str, Any] = {"tenant": tenant, "bucket": bucket, "policy": policy}
    for scope in Scope:
        right = {scope: targets[scope]} if scope in targets else {}
        for name, target in targets.items():
            wrong = right | {name: None if name == scope else target}
            with pytest.raises(ValidationError) as refused:
                press(compliance, scope, **wrong)
            assert set(refused.value.message_dict) == {name}
            with pytest.raises(IntegrityError, match="stop_names_its_scope"), transaction.atomic():
                StopSwitch.objects.create(scope=scope, reason="R", pressed_by=compliance, **wrong)
        press(compliance, scope, **right)


def test_what_is_stopped_is_not_stopped_again_until_it_is_lifted(
    tenant: Tenant, other: Tenant, compliance: User
) -> None:
    for target in ({"scope": Scope.EVERYTHING}, {"scope": Scope.TENANT, "tenant": tenant}):
        switch = press(compliance, **target)
        before = epochs()
        with pytest.raises(RetentionError, match="It is stopped already"):
            press(compliance, **target)
        assert epochs() == before
        control.lift(switch=switch, by=compliance, reason="Seen.")
        with pytest.raises(RetentionError, match="is lifted already"):
            control.lift(switch=switch, by=compliance, reason="Again.")
        press(compliance, **target)
    press(compliance, Scope.TENANT, tenant=other)


def test_the_epochs_of_all_who_are_concerned_rise_at_the_press_and_at_the_lift(
    tenant: Tenant, other: Tenant, bucket: Bucket, policy: RetentionPolicy, compliance: User
) -> None:
    def both(scope: Scope, **target: Any) -> dict[str, int]:
        before = {"acme": 0, "other": 0} | epochs()
        switch = press(compliance, scope, **target)
        pressed = {"acme": 0, "other": 0} | epochs()
        control.lift(switch=switch, by=compliance, reason="Seen.")
        risen = {code: pressed[code] - before[code] for code in before}
        assert {code: epochs().get(code, 0) - pressed[code] for code in pressed} == risen
        return risen

    assert both(Scope.EVERYTHING) == {"acme": 1, "other": 1}
    assert both(Scope.BUCKET, bucket=bucket) == {"acme": 1, "other": 1}
    assert both(Scope.TENANT, tenant=tenant) == {"acme": 1, "other": 0}
    assert both(Scope.POLICY, policy=policy) == {"acme": 1, "other": 0}


def test_what_workers_read(
    tenant: Tenant, other: Tenant, bucket: Bucket, policy: RetentionPolicy, compliance: User
) -> None:
    def read(of: Tenant) -> tuple[bool, set[int], set[int]]:
        stopped = control.read(of.pk)[1]
        return stopped.whole, set(stopped.buckets), set(stopped.policies)

    assert (control.read(other.pk)[0], read(other)) == (0, (False, set(), set()))
    of_tenant = press(compliance, Scope.TENANT, tenant=tenant)
    assert (read(tenant)[0], read(other)[0]) == (True, False)
    control.lift(switch=of_tenant, by=compliance, reason="Seen.")
    press(compliance, Scope.BUCKET, bucket=bucket)
    press(compliance, Scope.POLICY, policy=policy)
    assert read(tenant) == (False, {bucket.pk}, {policy.pk})
    press(compliance)
    assert (read(tenant)[0], read(other)[0]) == (True, True)


def test_a_switch_is_lifted_once_and_otherwise_never_changed(compliance: User) -> None:
    switch = StopSwitch.objects.filter(pk=press(compliance).pk)
    lifted = {"lifted_at": clock.now(), "lifted_by": compliance, "lift_reason": "Seen."}
    changes: list[dict[str, Any]] = [
        {"reason": "Another."}, {"pressed_by": None}, {"pressed_at": clock.now()}, lifted | {"reason": "Another."},
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(IntegrityError, match="can only be lifted, once"), transaction.atomic():
            switch.update(**change)
    for left_out, none in {"lifted_by": None, "lift_reason": ""}.items():
        with pytest.raises(IntegrityError, match="stop_lifted_by_somebody"), transaction.atomic():
            switch.update(**lifted | {left_out: none})
    switch.update(**lifted)
    for change in ({"lift_reason": "Another."}, {"lifted_at": None, "lifted_by": None, "lift_reason": ""}):
        with pytest.raises(IntegrityError, match="can only be lifted, once"), transaction.atomic():
            switch.update(**change)
    for remove in (switch.delete, lambda: switch._raw_delete("default")):
        with pytest.raises(IntegrityError), transaction.atomic():
            remove()
    with pytest.raises(IntegrityError, match="pressed before it is lifted"), transaction.atomic():
        StopSwitch.objects.create(scope=Scope.EVERYTHING, reason="R", **lifted)


def test_lifting_the_switch_of_a_bucket_ends_its_alarm(bucket: Bucket, compliance: User) -> None:
    switch = press(None, Scope.BUCKET, bucket=bucket)
    alarms.notice(control.BUCKET_TRIPPED, bucket, "Too much failed.")
    assert AuditEvent.objects.get(action="stop.pressed").actor_name == "system"
    control.lift(switch=switch, by=compliance, reason="Repaired.")
    assert not Alarm.objects.open().exists()
