"""The audit record commits with its act, or neither does."""

import pytest
from django.db import transaction

from cleanup_project.base import audit
from cleanup_project.base.models import AuditEvent, User

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_act_is_recorded_inside_its_transaction_alone(manager: User) -> None:
    with pytest.raises(RuntimeError, match="needs the transaction"):
        audit.record(action="policy.published", subject=manager, by=manager)
    assert not AuditEvent.objects.exists()


def test_a_rolled_back_act_leaves_no_record(manager: User) -> None:
    def act() -> None:
        with transaction.atomic():
            audit.record(action="policy.published", subject=manager, by=manager, reason="Because")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        act()
    assert not AuditEvent.objects.exists()


def test_the_record_says_who_what_and_why(manager: User) -> None:
    with transaction.atomic():
        audit.record(action="a.b", subject=manager, by=manager, reason="Because", before={"x": 1}, after={"x": 2})
        audit.record(action="c.d", subject=manager, by=None)
    second, first = AuditEvent.objects.all()
    assert (first.actor, first.actor_name, first.action, first.reason) == (manager, "manager", "a.b", "Because")
    assert (first.subject_type, first.subject_id, first.before, first.after) == (
        "base.user",
        str(manager.pk),
        {"x": 1},
        {"x": 2},
    )
    assert (second.actor, second.actor_name) == (None, "system")
