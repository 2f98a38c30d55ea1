"""`bench dashboard`: how long the server takes for the dashboard when much has happened and much waits.

The rollups are filled directly, for thirty days of 100 million events a day, and the live tables with what a large
installation has. The baseline is the same fragment over an empty database. Then a round of counting is timed beside it.
"""

import re
import statistics
import time
from collections.abc import Callable
from typing import Any, Final

from django.contrib.auth.models import Group
from django.core.cache import caches
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings
from django.urls import reverse

from cleanup_project.base import roles, rollups
from cleanup_project.base.models import Rollup, User
from cleanup_project.operations.bench import Result, scratch_database
from cleanup_project.operations.bench.ledger import build
from ledger import rollups as of_ledger
from ledger.models import CleanupCommand, DeadLetter, Receipt
from webhooks import rollups as of_webhooks
from webhooks.models import Delivery, OutboxEvent

TENANTS: Final = ("", "bench", "second", "third")  # all together, and three of their own
LAGS: Final = (of_ledger.DELETION, of_webhooks.FIRST_SEND, of_webhooks.ACKNOWLEDGEMENT)
BUCKETS: Final = 60  # that durations of each minute spread over
COUNTERS: Final = {
    of_ledger.ATTEMPTS: ("deleted", "transient", "throttled", "permission", "conflict", "survived"),
    of_ledger.QUARANTINED: ("permission", "transient"),
    of_webhooks.ATTEMPTS: ("delivered", "transient", "network", "timeout_ambiguous", "throttled"),
}
DAYS: Final = 30
TOKEN: Final = "of-the-bench-and-of-nothing-else"  # noqa: S105 - there is nothing else

FILL_COMMANDS: Final = """
INSERT INTO ledger_cleanupcommand (
    key, tenant_id, bucket_id, policy_id, revision_id, asset, run_id, item_id, target_count, bytes, eligible_since,
    published_at, state, outcome, event_id, priority, due_at, lease_token, attempts, failure_class, changed_at
)
SELECT
    'filled:' || n, c.tenant_id, c.bucket_id, c.policy_id, c.revision_id, n, c.run_id, c.item_id, 1, 1,
    now() - n * interval '1 s', now(), filled.state, CASE filled.state WHEN 'notified' THEN 'deleted' ELSE '' END,
    CASE filled.state WHEN 'notified' THEN 'evt_' || n ELSE '' END, 1, now() - (n / 1000) * interval '1 s', 0, 0,
    CASE filled.state WHEN 'dead' THEN 'permission' ELSE '' END, now()
FROM (SELECT * FROM ledger_cleanupcommand LIMIT 1) c
CROSS JOIN LATERAL (
    SELECT n, CASE WHEN n %% 50 = 0 THEN 'dead' WHEN n %% 10 = 0 THEN 'ready' ELSE 'notified' END AS state
    FROM generate_series(1, %(rows)s) n
) filled
"""
FILL_QUARANTINE: Final = """
INSERT INTO ledger_deadletter (
    command_id, cycle, tenant_id, bucket_id, run_id, policy_id, key, version_id, failure_class, storage_code, attempts,
    first_failed_at, first_error, last_error, next_action, entered_at
)
SELECT
    id, 0, tenant_id, bucket_id, run_id, policy_id, key, 'v', failure_class, 'AccessDenied', 1,
    now() - (id % 100000) * interval '1 s', 'No.', 'No.', 'Grant it.', now() - (id % 100000) * interval '1 s'
FROM ledger_cleanupcommand WHERE state = 'dead'
"""
FILL_RECEIPTS: Final = """
INSERT INTO ledger_receipt (
    command_id, command_key, tenant_id, run_id, policy_id, bucket_id, outcome, event_id, target_count, bytes, body, digest,
    issued_at
)
SELECT
    last.id + n, 'receipt:' || n, c.tenant_id, c.run_id, c.policy_id, c.bucket_id, 'deleted', '', 1, 1,
    repeat('x', 400)::bytea, sha256(repeat('x', 400)::bytea), now() - (%(rows)s - n) * interval '10 ms'
FROM (SELECT * FROM ledger_cleanupcommand LIMIT 1) c, (SELECT max(id) AS id FROM ledger_cleanupcommand) last,
    generate_series(1, %(rows)s) n
"""
FILL_DELIVERIES: Final = """
WITH event AS (
    INSERT INTO webhooks_outboxevent (
        event_id, tenant, type, subject, name, occurrence, command_key, lane_id, sequence, schema_version, body,
        body_sha256, emitted_at
    )
    SELECT
        'evt_filled' || n, 'bench', 'media.deleted', n, n, '', '', -n, 1, 1, 'x', sha256('x'),
        now() - n * interval '100 ms'
    FROM generate_series(1, %(rows)s) n
    RETURNING id
)
INSERT INTO webhooks_delivery (
    event_id, endpoint_id, tenant, round, lane_id, sequence, state, due_at, attempts, lease_token, last_class, last_error,
    cancel_reason, finished_at
)
SELECT
    event.id, e.id, 'bench', 0, -event.id, 1, state, now(), 1, 1, '', '', '', CASE state WHEN 'delivered' THEN now() END
FROM event CROSS JOIN (SELECT id FROM webhooks_endpoint LIMIT 1) e
CROSS JOIN LATERAL (SELECT CASE WHEN event.id %% 20 = 0 THEN 'pending' ELSE 'delivered' END AS state) s
"""
FILL_ROLLUPS: Final = """
INSERT INTO base_rollup (metric, seconds, tenant, begins_at, label, bucket, n, greatest)
SELECT metric, %(seconds)s, tenant, begins_at, label, bucket, n, greatest
FROM generate_series(
    date_bin(%(seconds)s * interval '1 s', now() - %(kept)s * interval '1 s', 'epoch'), now(), %(seconds)s * interval '1 s'
) AS begins_at
CROSS JOIN unnest(%(tenants)s::text[]) AS tenant
CROSS JOIN (
    SELECT
        metric, CASE metric WHEN 'deletion' THEN 'deleted' ELSE '' END AS label, 60 + b AS bucket,
        1 + (%(each)s * exp(-((b - 25) ^ 2) / 200.0) / 22)::int AS n, 60.0 * b
    FROM unnest(%(lags)s::text[]) AS metric CROSS JOIN generate_series(0, %(buckets)s - 1) AS b
    UNION ALL
    SELECT metric, label, -1, %(each)s, NULL
    FROM ROWS FROM (unnest(%(metrics)s::text[]), unnest(%(labels)s::text[])) AS c (metric, label)
) AS each (metric, label, bucket, n, greatest)
"""


def run(*, commands: int = 1_000_000, receipts: int = 1_000_000, looks: int = 15) -> Result:
    """`value` is the median of the fragment, made anew, in milliseconds; what is kept for five seconds is not counted."""
    with scratch_database(), override_settings(MFA_REQUIRED=False, METRICS_TOKEN=TOKEN):
        client = signed_in()
        small = timed(client, fragment, looks)
        build(1000, ["plain", "drained"])
        fill(commands, receipts)
        large = timed(client, fragment, looks)
        details = {
            "rows": {
                str(model._meta.verbose_name_plural): model._base_manager.count()
                for model in (Rollup, CleanupCommand, DeadLetter, Receipt, Delivery)
            },
            "fragment_ms": {span: timed(client, fragment, looks, span) for span in rollups.SPANS},
            "page_ms": timed(client, page, looks),
            "page_from_cache_ms": timed(client, page, looks, fresh=False),
            "queries": queries(client),
            "scrape_ms": timed(client, scrape, looks),
            "round_of_counting_ms": counting(),
        }
    return Result(
        name="dashboard",
        value=large["median"],
        unit="ms",
        baseline="the same fragment over an empty database",
        baseline_value=small["median"],
        ratio=round(large["median"] / small["median"], 2),
        details={"ratio": "ms to ms, lower is better", **details},
    )


def signed_in() -> Client:
    """An auditor, who sees every application and every tenant."""
    person = User.objects.create(username="auditor", is_staff=True)
    person.groups.add(Group.objects.get(name=roles.AUDITOR))
    client = Client(SERVER_NAME="localhost")
    client.force_login(person)
    return client


def fragment(client: Client, span: str) -> None:
    answered(client, span, {"HX-Request": "true"})


def page(client: Client, span: str) -> None:
    answered(client, span, {})


def scrape(client: Client, _span: str) -> None:
    response = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    left_out = re.findall(rb'cleanup_scrape_errors{part="(\w+)"} 1', response.content)
    if response.status_code != 200 or left_out:
        raise RuntimeError(f"/metrics answered {response.status_code} and left out {left_out}")


def answered(client: Client, span: str, headers: dict[str, str]) -> None:
    response = client.get(reverse("dashboard"), {"span": span}, headers=headers, secure=True)
    if response.status_code != 200:
        raise RuntimeError(f"the dashboard answered {response.status_code}")


def timed(
    client: Client, ask: Callable[[Client, str], None], looks: int, span: str = "24h", *, fresh: bool = True
) -> dict[str, float]:
    """Milliseconds of so many requests, after one that is not counted; `fresh`: each makes its fragment anew."""
    times = []
    for _ in range(looks + 1):
        if fresh:
            caches["process"].clear()
        started = time.perf_counter()
        ask(client, span)
        times.append((time.perf_counter() - started) * 1000)
    counted = sorted(times[1:])
    return {"median": round(statistics.median(counted), 1), "max": round(counted[-1], 1)}


def queries(client: Client) -> int:
    caches["process"].clear()
    with CaptureQueriesContext(connection) as captured:
        fragment(client, "24h")
    return len(captured)


def fill(commands: int, receipts: int) -> None:
    with connection.cursor() as cursor:
        for model in (CleanupCommand, DeadLetter, Receipt, OutboxEvent, Delivery):
            # The guards would refuse what has no past. Nobody needs them here any more.
            cursor.execute(f"ALTER TABLE {model._meta.db_table} DISABLE TRIGGER ALL")
        cursor.execute(FILL_COMMANDS, {"rows": commands})
        cursor.execute(FILL_QUARANTINE)
        cursor.execute(FILL_RECEIPTS, {"rows": receipts})
        cursor.execute(FILL_DELIVERIES, {"rows": commands})
        fill_rollups(cursor)
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("CHECKPOINT")


def fill_rollups(cursor: Any) -> None:
    """100 million a day of each metric, for DAYS days at most, or for as long as a stretch is kept."""
    metrics, labels = zip(*((metric, each) for metric, names in COUNTERS.items() for each in names), strict=True)
    for seconds, kept in rollups.KEPT.items():
        cursor.execute(
            FILL_ROLLUPS,
            {
                "seconds": seconds,
                "kept": min(kept.total_seconds(), DAYS * 86400),
                "each": 100_000_000 * seconds // 86400,
                "tenants": list(TENANTS),
                "lags": list(LAGS),
                "buckets": BUCKETS,
                "metrics": list(metrics),
                "labels": list(labels),
            },
        )


def counting() -> dict[str, float]:
    """What one round of the sweep takes for each source, when the minutes before it were as busy as the filled tables are."""
    took = {}
    for source in (*of_ledger.SOURCES, *of_webhooks.SOURCES):
        started = time.perf_counter()
        rollups.count_source(source)
        took[source.name] = round((time.perf_counter() - started) * 1000, 1)
    return took
