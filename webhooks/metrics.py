"""What dispatch looks like from outside, read from the database: no process has to have counted anything.

Each read is bounded: a count ends at COUNTED rows for an endpoint, which stands for "so many or more".
"""

from collections.abc import Mapping
from typing import Any, Final

from django.db import connection

from cleanup_project.base import alarms, rollups, sqlfiles
from cleanup_project.base.models import Alarm
from webhooks.failures import SENDER_ERROR
from webhooks.limits import LEASE
from webhooks.models import Endpoint
from webhooks.rollups import ACKNOWLEDGEMENT, FIRST_SEND

COUNTED: Final = 100_000
LATE: Final = 120.0  # seconds that a delivery may be due before somebody is called
LATE_ALARM: Final = "webhooks.oldest_due"

Sample = tuple[str, Mapping[str, str], float]


def snapshot() -> list[Sample]:
    """(name, labels, value) of each metric, as gauges. No label names an endpoint: there may be many.

    `_last_hour` counts attempts that ended within an hour; classes are those of `webhooks.failures`, `delivered` for 2xx.
    `webhook_lease_lost` counts attempts that never ended: whoever sent them was lost. Ages and times are seconds.
    """
    return [*ages(), *attempts(), *times(), *latencies(), *deliveries(), *endpoints()]


def ages() -> list[Sample]:
    return [("webhook_oldest_due_age_seconds", {}, max((age for _, age in oldest_due()), default=0.0))]


def attempts() -> list[Sample]:
    found = rows("metrics_attempts.sql")
    by_class = {failure_class: count for failure_class, count, _ in found}
    return [
        *(("webhook_attempts_last_hour", {"class": each or "delivered"}, count) for each, count, _ in found),
        ("webhook_blocked_last_hour", {}, by_class.get("blocked", 0)),
        ("webhook_sender_error_last_hour", {}, by_class.get(SENDER_ERROR, 0)),
        ("webhook_conn_retry_last_hour", {}, sum(resent for _, _, resent in found)),
    ]


def times() -> list[Sample]:
    """How long 95 of 100 attempts of the last hour took at most, in all and by phase; none where there was no attempt."""
    ((dns, connect, tls, first_byte, total),) = rows("metrics_times.sql")
    found = {"dns": dns, "connect": connect, "tls": tls, "first_byte": first_byte, "total": total}
    return [
        ("webhook_attempt_seconds_last_hour", {"phase": phase, "quantile": "0.95"}, milliseconds / 1000)
        for phase, milliseconds in found.items()
        if milliseconds is not None
    ]


def latencies() -> list[Sample]:
    """From an event to the first request of a delivery and to its acknowledgement, within `rollups.ERROR`; the longest exact.

    Of minutes that have closed and been counted; none where nothing was sent or acknowledged. Redeliveries are left out.
    """
    named = {
        "webhook_first_attempt_latency_seconds_last_hour": FIRST_SEND,
        "webhook_delivery_latency_seconds_last_hour": ACKNOWLEDGEMENT,
    }
    found = {name: rollups.percentiles(metric, rollups.SPANS["1h"])[:1] for name, metric in named.items()}
    return [
        (name, {"quantile": quantile}, value)
        for name, whole in found.items()
        for each in whole
        for quantile, value in (("0.5", each.p50), ("0.95", each.p95), ("0.99", each.p99), ("1", each.greatest))
    ]


def deliveries() -> list[Sample]:
    ((due, waiting, held, in_flight, lost),) = rows("metrics_deliveries.sql")
    return [
        ("webhook_pending", {"state": "due"}, due),
        ("webhook_pending", {"state": "waiting"}, waiting),
        ("webhook_pending", {"state": "held"}, held),
        ("webhook_inflight", {}, in_flight),
        ("webhook_lease_lost", {}, lost),
        *(("webhook_dead", {"class": each}, count) for each, count in rows("metrics_dead.sql")),
    ]


def endpoints() -> list[Sample]:
    ((closed, opened, disabled, paused, failing, keys),) = rows("metrics_endpoints.sql")
    return [
        ("webhook_endpoint_state", {"state": "closed"}, closed),
        ("webhook_endpoint_state", {"state": "open"}, opened),
        ("webhook_endpoint_state", {"state": "disabled"}, disabled),
        ("webhook_endpoints_paused", {}, paused),
        ("webhook_endpoints_failing", {}, failing),
        ("webhook_active_keys", {}, keys),
    ]


def rows(name: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, name), {"counted": COUNTED, "lease": LEASE})
        return list(cursor.fetchall())


def oldest_due() -> list[tuple[int, float]]:
    """(endpoint, age in seconds) of the oldest delivery that is due, and that nothing but our own slowness keeps."""
    return rows("metrics_oldest_due.sql")


def watch() -> int:
    """Call somebody where deliveries are due and nobody sends them; returns for how many endpoints."""
    late = {endpoint_id: age for endpoint_id, age in oldest_due() if age > LATE}
    for endpoint in Endpoint.objects.filter(pk__in=late).order_by("pk"):
        alarms.notice(
            LATE_ALARM,
            endpoint,
            f"A delivery to it has been due for {late[endpoint.pk] / 60:.0f} minutes, and nothing keeps it. See whether "
            "`manage.py worker` runs, and whether it is busy with other endpoints or other work.",
        )
    for alarm in Alarm.objects.open().filter(kind=LATE_ALARM):
        if int(alarm.subject_id) not in late:
            alarms.clear(LATE_ALARM, Endpoint(pk=int(alarm.subject_id)))
    return len(late)
