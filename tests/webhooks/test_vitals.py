"""How old the oldest is of whatever waits in dispatch, and which endpoints are in trouble."""

import pytest
from django.db import connection

from cleanup_project.base import sqlfiles
from cleanup_project.base.models import User
from tests.webhooks.past import deliveries
from tests.webhooks.world import endpoint, sql
from webhooks import vitals
from webhooks.models import OutboxEvent

pytestmark = pytest.mark.django_db

ELSEWHERE = ["elsewhere"]


def test_the_oldest_undelivered_is_pending_and_of_the_oldest_event(operator: User) -> None:
    made, _ = endpoint(operator)
    assert vitals.owed() is None
    one, other = deliveries(made, 2)
    emitted = OutboxEvent.objects.earliest("id").emitted_at
    assert vitals.owed() == vitals.owed(["acme"]) == (one, emitted)
    assert vitals.owed(ELSEWHERE) is None
    sql("UPDATE webhooks_delivery SET state = 'dead', finished_at = now() WHERE id = %s", one)
    found = vitals.owed()
    assert found is not None
    assert found.delivery_id == other


def test_what_is_due_and_not_sent_is_of_the_tenants_asked_about(operator: User) -> None:
    made, _ = endpoint(operator)
    deliveries(made, 1)
    sql("UPDATE webhooks_delivery SET due_at = now() - interval '90 s'")
    assert 90 <= vitals.due_for() < 100
    assert 90 <= vitals.due_for(["acme"]) < 100
    assert vitals.due_for(ELSEWHERE) == 0


@pytest.mark.parametrize(
    ("change", "troubled"),
    [
        ("name = name", False),
        ("disabled_at = now(), disabled_reason = 'x'", True),
        ("disabled_at = now(), disabled_reason = 'x', retired_at = now()", False),
        ("circuit_step = 1, open_until = now()", True),
        ("failing_since = now()", True),
        ("paused_until = now() + interval '1 h'", True),
        ("paused_until = now() - interval '1 h'", False),
    ],
)
def test_an_endpoint_is_in_trouble_when_somebody_should_look(change: str, troubled: bool, operator: User) -> None:
    made, _ = endpoint(operator)
    sql(f"UPDATE webhooks_endpoint SET {change}")
    assert list(vitals.troubled()) == list(vitals.troubled(["acme"])) == ([made] if troubled else [])
    assert not vitals.troubled(ELSEWHERE).exists()


def test_the_oldest_undelivered_is_found_by_its_index(operator: User) -> None:
    made, _ = endpoint(operator)
    deliveries(made, 1)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")  # a small table is read whole
        cursor.execute(f"EXPLAIN {sqlfiles.read(vitals.__file__, 'vital_owed.sql')}", {"codes": []})
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "delivery_owed" in plan, plan
    assert "Sort" not in plan.split("delivery_owed")[1], plan
