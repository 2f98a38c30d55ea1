"""What of dispatch is counted minute by minute agrees with the attempts."""

from datetime import timedelta

import pytest
from django.db import connection

from cleanup_project.base import clock, rollups
from cleanup_project.base.models import User
from cleanup_project.base.rollups import SPANS
from tests.webhooks.past import attempt, deliveries
from tests.webhooks.world import endpoint, sql
from webhooks.rollups import ACKNOWLEDGEMENT, ATTEMPTS, FIRST_SEND, REDELIVERY, SOURCES

pytestmark = pytest.mark.django_db

SPAN = SPANS["24h"]


def count_all() -> None:
    now = clock.now()
    changed = rollups.count_between(SOURCES[0], now - timedelta(days=1), now + timedelta(minutes=1))
    rollups.fold(SOURCES[0].metrics, changed[0], changed[-1])


def test_attempts_are_counted_by_class_and_timed_from_their_event(operator: User) -> None:
    first, second = (endpoint(operator, name=name)[0] for name in ("first", "second"))
    one = deliveries(first, 2)[0]
    other = second.deliveries.order_by("id").values_list("pk", flat=True)[0]
    sql("ALTER TABLE webhooks_outboxevent DISABLE TRIGGER ALL")
    sql("UPDATE webhooks_outboxevent SET emitted_at = now() - interval '1000 s'")
    attempt(one, "transient", 900)
    attempt(one, "", 400)
    attempt(other, "delivered_duplicate", 990)
    count_all()
    assert rollups.by_label([ATTEMPTS], SPAN)[ATTEMPTS] == {"delivered": 1, "delivered_duplicate": 1, "transient": 1}
    sent, answered = (rollups.percentiles(metric, SPAN, ["acme"])[0] for metric in (FIRST_SEND, ACKNOWLEDGEMENT))
    assert (sent.number, sent.greatest) == (2, pytest.approx(100, abs=2))
    assert sent.p50 == pytest.approx(10, rel=0.25)
    assert (answered.number, answered.greatest) == (2, pytest.approx(600, abs=2))
    assert answered.p50 == pytest.approx(10, rel=0.25)


def test_a_redelivery_is_an_attempt_and_no_lag(operator: User) -> None:
    made, _ = endpoint(operator)
    (one,) = deliveries(made, 1)
    sql("ALTER TABLE webhooks_delivery DISABLE TRIGGER ALL")
    sql("UPDATE webhooks_delivery SET round = 1, lane_id = NULL, requested_by_id = %s", operator.pk)
    attempt(one, "", 60)
    count_all()
    assert rollups.by_label([ATTEMPTS, REDELIVERY], SPAN) == {ATTEMPTS: {"delivered": 1}, REDELIVERY: {"": 1}}
    assert rollups.percentiles(FIRST_SEND, SPAN) == rollups.percentiles(ACKNOWLEDGEMENT, SPAN) == []


def test_attempts_of_a_minute_are_found_by_their_endpoint_and_time(operator: User) -> None:
    made, _ = endpoint(operator)
    (one,) = deliveries(made, 1)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO webhooks_deliveryattempt (delivery_id, endpoint_id, number, token, is_probe, started_at, "
            "finished_at, url, key_ids, peer, failure_class, error, milliseconds) "
            "SELECT %s, %s, n, n, false, at, at, '', '{}', '', '', '', 5 "
            "FROM (SELECT n, '2026-01-01Z'::timestamptz + n * interval '2 s' AS at FROM generate_series(1, 50000) n) filled",
            [one, made.pk],
        )
        cursor.execute("ANALYZE webhooks_deliveryattempt")
        cursor.execute(f"EXPLAIN {SOURCES[0].select}", {"begin": "2026-01-01T12:00Z", "end": "2026-01-01T12:01Z"})
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "attempt_answers" in plan, plan
