"""What can be seen of dispatch from outside, and who is called when it sleeps."""

from datetime import timedelta

import pytest

from cleanup_project.base import clock
from cleanup_project.base import rollups as rolling
from cleanup_project.base.models import Alarm, User
from tests.webhooks.past import attempt, deliveries
from tests.webhooks.world import assets, endpoint, notice, sql, tell
from webhooks import claiming, metrics, rollups, sweep
from webhooks.models import Delivery, Endpoint

pytestmark = pytest.mark.django_db


def values() -> dict[tuple[str, ...], float]:
    return {(name, *labels.values()): value for name, labels, value in metrics.snapshot()}


def test_an_empty_system_has_zeros() -> None:
    found = values()
    assert found["webhook_oldest_due_age_seconds",] == 0
    assert found["webhook_pending", "due"] == 0
    assert set(found.values()) == {0}


def test_every_metric_says_what_is_so(operator: User) -> None:
    made, _ = endpoint(operator)
    other, _ = endpoint(operator, name="other", event_types=["run.closed"])
    off, _ = endpoint(operator, name="off", event_types=["hold.placed"])
    sql("UPDATE webhooks_endpoint SET disabled_at = now(), disabled_reason = 'x' WHERE id = %s", off.pk)
    sql(
        "UPDATE webhooks_endpoint SET circuit_step = 2, open_until = now() + interval '1 h', failing_since = now(), "
        "paused_until = now() + interval '1 h' WHERE id = %s",
        other.pk,
    )
    ids = deliveries(made, 6)
    tell(notice("subject-0", "behind"), notice("o", "o", type="hold.placed"))
    for failure_class, ago in (
        ("", 10),
        ("", 20),
        ("transient", 30),
        ("blocked", 40),
        ("sender_error", 50),
        ("", 4000),
    ):
        attempt(ids[0], failure_class, ago)
    claiming.claim_from(made.pk, 2)
    sql(
        "UPDATE webhooks_delivery SET lease_until = NULL, state = 'dead', last_class = 'auth', finished_at = now() "
        "WHERE id = %s",
        ids[5],
    )
    sql(
        "INSERT INTO webhooks_deliveryattempt (delivery_id, endpoint_id, number, token, is_probe, started_at, url, key_ids, "
        "peer, failure_class, error) VALUES (%s, %s, 99, 99, false, now() - interval '1 day', '', '{}', '', '', '')",
        ids[4],
        made.pk,
    )
    sql("UPDATE webhooks_delivery SET due_at = now() - interval '90 s' WHERE id = %s", ids[3])
    until_now = clock.now() + timedelta(minutes=1)
    rolling.count_between(rollups.SOURCES[0], until_now - timedelta(minutes=2), until_now)
    found = values()
    times = {key: found.pop(key) for key in list(found) if "latency" in key[0]}
    age = found.pop(("webhook_oldest_due_age_seconds",))
    assert 90 <= age < 100
    assert set(times) == {
        (f"webhook_{name}_latency_seconds_last_hour", quantile)
        for name in ("first_attempt", "delivery")
        for quantile in ("0.5", "0.95", "0.99", "1")
    }
    assert set(times.values()) == {0}  # they were sent before their event: past times are made up here
    assert found == {
        ("webhook_attempts_last_hour", "delivered"): 2,
        ("webhook_attempts_last_hour", "transient"): 1,
        ("webhook_attempts_last_hour", "blocked"): 1,
        ("webhook_attempts_last_hour", "sender_error"): 1,
        ("webhook_blocked_last_hour",): 1,
        ("webhook_sender_error_last_hour",): 1,
        ("webhook_conn_retry_last_hour",): 0,
        ("webhook_attempt_seconds_last_hour", "total", "0.95"): 0.005,
        ("webhook_pending", "due"): 6,
        ("webhook_pending", "waiting"): 1,
        ("webhook_pending", "held"): 1,
        ("webhook_inflight",): 2,
        ("webhook_lease_lost",): 1,
        ("webhook_dead", "auth"): 1,
        ("webhook_endpoint_state", "closed"): 1,
        ("webhook_endpoint_state", "open"): 1,
        ("webhook_endpoint_state", "disabled"): 1,
        ("webhook_endpoints_paused",): 1,
        ("webhook_endpoints_failing",): 1,
        ("webhook_active_keys",): 3,
    }


@pytest.mark.parametrize(
    ("change", "called"),
    [
        ("", True),
        ("disabled_at = now(), disabled_reason = 'x'", False),
        ("circuit_step = 1, open_until = now()", False),
        ("paused_until = now() + interval '1 h'", False),
        ("paused_until = now() - interval '1 h'", True),
        ("resumed_at = now()", False),
    ],
)
def test_somebody_is_called_when_what_is_due_is_not_sent(change: str, called: bool, operator: User) -> None:
    made, _ = endpoint(operator)
    tell(*assets(2))
    sql("UPDATE webhooks_delivery SET due_at = now() - interval '119 s'")
    sweep.sweep()
    assert not Alarm.objects.open().exists()
    sql("UPDATE webhooks_delivery SET due_at = now() - interval '300 s'")
    if change:
        sql(f"UPDATE webhooks_endpoint SET {change}")
    assert sweep.sweep()["late_endpoints"] == int(called)
    alarms = Alarm.objects.open()
    assert [(alarm.kind, alarm.subject_id) for alarm in alarms] == (
        [(metrics.LATE_ALARM, str(made.pk))] if called else []
    )
    if called:
        assert "due for 5 minutes" in alarms[0].message
        Endpoint.objects.update(paused_until=None)
        Delivery.objects.update(lease_until="2999-01-01T00:00:00Z")  # it is being sent
        sweep.sweep()
        assert not Alarm.objects.open().exists()
