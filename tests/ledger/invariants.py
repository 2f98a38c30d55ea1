"""The promises of the ledger that can be checked from the database and the store when nothing runs.

`check` raises AssertionError with everything that it found broken. The numbers are those of the design's list of invariants.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from django.db import connection

from retention.buckets import ref
from retention.models import Bucket
from retention.storage import BucketRef, ObjectStore, VersionRef
from tests.ledger.laws import TOLD_EACH_TIME, TOLD_ONCE
from tests.webhooks.schemas import wrong_bodies

Stores = Callable[[BucketRef], ObjectStore]

# Each query returns what breaks the rule that it is named after.
BROKEN: Final[dict[str, str]] = {
    "1: each cycle above 0 has exactly one decision": """
        SELECT c.key, c.cycle FROM ledger_cleanupcommand c
        LEFT JOIN (SELECT command_id, count(*) AS n, max(cycle) AS last FROM ledger_decision GROUP BY 1) d
            ON d.command_id = c.id
        WHERE (coalesce(d.n, 0), coalesce(d.last, 0)) <> (c.cycle, c.cycle)
    """,
    "2: tokens rise by one at each claim": """
        SELECT c.key, c.lease_token, c.claims FROM ledger_cleanupcommand c
        WHERE c.lease_token <> c.claims
            OR EXISTS (SELECT FROM ledger_attempt a WHERE a.command_id = c.id AND a.token > c.lease_token)
            OR EXISTS (SELECT FROM ledger_request r WHERE r.command_id = c.id AND r.token > c.lease_token)
    """,
    "2: one success in time, or an incident, and nothing else makes a command deleted": """
        SELECT c.key, c.state, s.n FROM ledger_cleanupcommand c
        LEFT JOIN LATERAL (
            SELECT count(*) AS n FROM ledger_attempt a WHERE a.command_id = c.id AND NOT a.late
                AND a.outcome IN ('deleted', 'by_absence', 'already_absent')
        ) s ON true
        LEFT JOIN LATERAL (SELECT count(*) AS n FROM ledger_incident i WHERE i.command_id = c.id) i ON true
        WHERE (c.state IN ('deleted', 'notified')) <> (s.n + i.n > 0) OR s.n > 1
    """,
    "2: attempts and lost leases are counted as they are recorded": """
        SELECT c.key, c.attempts, c.lease_losses FROM ledger_cleanupcommand c
        CROSS JOIN LATERAL (
            SELECT count(*) FILTER (WHERE a.charged) AS charged, count(*) FILTER (WHERE a.outcome = 'lease_lost') AS lost
            FROM ledger_attempt a WHERE a.command_id = c.id AND NOT a.late AND a.cycle = c.cycle
        ) a
        WHERE (c.attempts, c.lease_losses) <> (a.charged, a.lost)
    """,
    "3: a request is younger than its publication, and its run has a root": """
        SELECT c.key, r.token FROM ledger_request r JOIN ledger_cleanupcommand c ON c.id = r.command_id
        JOIN ledger_cleanuprun run ON run.id = c.run_id
        WHERE r.made_at < c.published_at OR r.token < 1 OR run.manifest_root = ''
    """,
    "3: what was sent had a request": """
        SELECT c.key, a.token, a.outcome FROM ledger_attempt a JOIN ledger_cleanupcommand c ON c.id = a.command_id
        WHERE a.outcome IN ('deleted', 'not_sent')
            AND NOT EXISTS (SELECT FROM ledger_request r WHERE r.command_id = a.command_id AND r.token = a.token)
    """,
    "4, 5: what was claimed before a hold's barrier and ended behind it stands in its report": """
        SELECT c.key, r.token, rep.hold_id
        FROM ledger_holdreport rep JOIN retention_legalhold h ON h.id = rep.hold_id AND h.released_at IS NULL
        JOIN ledger_cleanupcommand c ON c.tenant_id = h.tenant_id
        JOIN ledger_request r ON r.command_id = c.id
        LEFT JOIN ledger_attempt a ON a.command_id = r.command_id AND a.token = r.token AND NOT a.late
        WHERE EXISTS (
            SELECT FROM ledger_commandtarget t JOIN retention_holdprefix p
                ON p.hold_id = h.id AND p.bucket_id = t.bucket_id AND t.key ^@ p.prefix
            JOIN retention_objectversion v ON v.id = t.object_version_id
            WHERE t.command_id = c.id
                AND (v.retention_class = ANY (h.retention_classes) OR '*' = ANY (h.retention_classes))
                AND (h.stored_from IS NULL OR t.stored_at >= h.stored_from)
                AND (h.stored_to IS NULL OR t.stored_at < h.stored_to)
        )
        AND (r.made_at > rep.reported_at OR a.settled_at > rep.reported_at)
        AND coalesce(a.outcome, '') NOT IN ('held', 'not_sent', 'withdrawn')
        AND NOT EXISTS (
            SELECT FROM ledger_inflight f WHERE f.report_id = h.id AND f.command_id = c.id AND f.token >= r.token
        )
    """,
    "5: a report ends closed": "SELECT report_id, command_id, token FROM ledger_inflight WHERE ended_at IS NULL",
    "6: nothing is parked or waits while one of its requests is unresolved": """
        SELECT c.key, r.token, c.state FROM ledger_request r JOIN ledger_cleanupcommand c ON c.id = r.command_id
        WHERE (c.lease_until IS NULL OR r.token < c.lease_token) AND NOT EXISTS (
            SELECT FROM ledger_attempt a WHERE a.command_id = r.command_id AND a.token = r.token AND NOT a.late
        )
    """,
    "6: at rest no late evidence is unanswered": """
        SELECT key, state FROM ledger_cleanupcommand WHERE inspect_due IS NOT NULL AND state <> 'ready'
    """,
    "7: the targets of open and successful commands are active, and all there": """
        SELECT c.key, c.state FROM ledger_cleanupcommand c
        LEFT JOIN ledger_commandtarget t ON t.command_id = c.id
        GROUP BY c.id
        HAVING count(t.id) <> c.target_count
            OR (c.state IN ('ready', 'deleted', 'notified')) <> bool_or(t.active)
            OR bool_or(t.active) <> bool_and(t.active)
    """,
    "8: deleted means that every target is gone": """
        SELECT c.key, c.state FROM ledger_cleanupcommand c JOIN ledger_commandtarget t ON t.command_id = c.id
        GROUP BY c.id HAVING (c.state IN ('deleted', 'notified')) <> bool_and(t.gone_at IS NOT NULL)
            AND NOT (c.state = 'dead' AND c.failure_class = 'already_absent')
    """,
    "8: deleted means exactly one receipt": """
        SELECT c.key, c.state, c.outcome, r.outcome FROM ledger_cleanupcommand c
        FULL JOIN ledger_receipt r ON r.command_id = c.id
        WHERE (c.state IN ('deleted', 'notified')) IS DISTINCT FROM (r.id IS NOT NULL)
            OR (r.command_key, r.outcome, r.event_id, r.target_count) <> (c.key, c.outcome, c.event_id, c.target_count)
            OR r.id IS NOT NULL
                AND (SELECT count(*) FROM ledger_receiptlocator l WHERE l.command_id = r.command_id) <> r.target_count
    """,
    "8: deleted means exactly one event": """
        SELECT c.key, c.state, e.event_id FROM ledger_cleanupcommand c
        FULL JOIN (SELECT * FROM webhooks_outboxevent WHERE type = 'media.deleted') e ON e.command_key = c.key
        WHERE (c.state IN ('deleted', 'notified')) IS DISTINCT FROM (e.id IS NOT NULL) OR e.event_id <> c.event_id
    """,
    "8: each fact has exactly one event, and each event its fact": TOLD_ONCE,
    "8: each trip and each wait for an approval has one event": TOLD_EACH_TIME,
    "8: an event has one delivery for each endpoint that subscribed to it": """
        SELECT e.event_id FROM webhooks_outboxevent e
        WHERE (SELECT count(*) FROM webhooks_delivery d WHERE d.event_id = e.id) <> (
            SELECT count(*) FROM webhooks_endpoint p WHERE p.tenant = e.tenant AND p.created_at <= e.emitted_at
                AND (e.type = ANY (p.event_types) OR p.event_types = '{*}')
        )
    """,
    "9: the catalogue knows what was destroyed": """
        SELECT c.key, v.key FROM ledger_cleanupcommand c JOIN ledger_commandtarget t ON t.command_id = c.id
        JOIN retention_objectversion v ON v.id = t.object_version_id
        WHERE c.state IN ('deleted', 'notified') AND v.gone_reason <> 'destroyed'
    """,
    "11: parts and items follow one another without gap, and a version stands once": """
        SELECT run.key FROM ledger_cleanuprun run
        LEFT JOIN LATERAL (
            SELECT count(*) AS n, coalesce(max(ordinal), 0) AS last, count(DISTINCT object_version_id) AS versions
            FROM ledger_manifestitem WHERE run_id = run.id
        ) i ON true
        LEFT JOIN LATERAL (
            SELECT count(*) AS n, coalesce(max(number), 0) AS last FROM ledger_manifestpart WHERE run_id = run.id
        ) p ON true
        WHERE i.n <> i.last OR i.n <> i.versions OR p.n <> p.last OR i.n <> coalesce(run.item_count, i.n)
            OR run.authorised_at < run.sealed_at OR run.published_parts > p.n
    """,
    "11: a closed run's counts add up to its items": """
        SELECT key, counts FROM ledger_cleanuprun WHERE state = 'closed' AND counts IS NOT NULL AND item_count <> (
            SELECT sum(value::bigint) FROM jsonb_each_text(counts)
        )
    """,
    "12: the sequences of a subject are without gap, in the order of commits": """
        SELECT l.subject, l.n FROM webhooks_lane l JOIN (
            SELECT lane_id, count(*) AS n, max(sequence) AS last, array_agg(sequence ORDER BY id) AS told
            FROM webhooks_outboxevent GROUP BY lane_id
        ) e ON e.lane_id = l.id
        WHERE (l.n, l.n) <> (e.n, e.last) OR e.told <> ARRAY(SELECT generate_series(1, e.n))
    """,
    "13: of each lane only the lowest open delivery is due or leased": """
        SELECT d.id FROM webhooks_delivery d WHERE d.state = 'pending'
            AND (d.due_at <> 'infinity' OR d.lease_until IS NOT NULL) <> NOT EXISTS (
                SELECT FROM webhooks_delivery o WHERE o.endpoint_id = d.endpoint_id AND o.lane_id = d.lane_id
                    AND o.state = 'pending' AND o.sequence < d.sequence
            )
    """,
    "14: at rest nothing is leased": "SELECT key, lease_until FROM ledger_cleanupcommand WHERE lease_until IS NOT NULL",
    "14: dead means one open entry in quarantine": """
        SELECT c.key, c.state FROM ledger_cleanupcommand c
        LEFT JOIN ledger_deadletter d ON d.command_id = c.id AND d.cycle = c.cycle AND d.resolved_at IS NULL
        WHERE (c.state = 'dead') <> (d.id IS NOT NULL)
    """,
    "14: nothing is deleted whose notices are all acknowledged": """
        SELECT c.key FROM ledger_cleanupcommand c JOIN webhooks_outboxevent e ON e.event_id = c.event_id
        WHERE c.state = 'deleted' AND e.settled_at IS NOT NULL
    """,
}


def check(stores: Stores | None = None, *, removed: Collection[VersionRef] = ()) -> None:
    """Assert all of it. `removed`: versions that somebody else took away; `stores` None: the store is not looked at."""
    found = [f"{name}: {rows[:5]}" for name, rows in broken()] + wrong_bodies()
    if stores is not None:
        for bucket in Bucket.objects.order_by("pk"):
            found += in_store(bucket, stores(ref(bucket)), frozenset(removed))
    assert not found, "\n".join(found)


def broken() -> Iterable[tuple[str, list[tuple[Any, ...]]]]:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 0" if connection.in_atomic_block else "SET statement_timeout = 0")
        for name, query in BROKEN.items():
            cursor.execute(query)
            rows = cursor.fetchall()
            if rows:
                yield name, rows


def in_store(bucket: Bucket, store: ObjectStore, removed: frozenset[VersionRef]) -> list[str]:
    """9 and 10: what is gone, and what should be."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT v.key, v.version_id, v.incarnation, v.stored_at, v.is_latest, v.is_delete_marker,
                coalesce(bool_or(t.gone_at IS NOT NULL), false),
                coalesce(bool_or(c.state = 'ready' AND (c.lease_until IS NOT NULL OR c.inspect_due IS NOT NULL)), false),
                coalesce(bool_or(c.outcome IN ('deleted', 'by_absence')), false)
            FROM retention_objectversion v
            LEFT JOIN ledger_commandtarget t ON t.object_version_id = v.id
            LEFT JOIN ledger_cleanupcommand c ON c.id = t.command_id
            WHERE v.bucket_id = %s GROUP BY v.id ORDER BY v.key, v.stored_at, v.id
            """,
            [bucket.pk],
        )
        rows = cursor.fetchall()
    there = present(store, ref(bucket), sorted({VersionRef(row[0], row[1]) for row in rows}, key=str))
    found, older = list[str](), dict[str, bool]()
    for key, version_id, incarnation, _at, latest, marker, known_gone, looked_for, by_us in rows:
        name = VersionRef(key, version_id)
        if known_gone and name in there and not incarnation:
            found.append(f"9: {name} is told to be gone, and is there")
        if name not in there and not (known_gone or looked_for or name in removed or incarnation):
            found.append(f"9: {name} is gone, and nobody says so")
        if by_us and latest and older.get(key):
            found.append(f"10: {name} went before an older version of its key")
        older[key] = older.get(key, False) or (name in there and not marker)
    return found


def present(store: ObjectStore, place: BucketRef, names: list[VersionRef]) -> set[VersionRef]:
    there = set[VersionRef]()
    for start in range(0, len(names), 1000):
        seen = store.inspect(place, names[start : start + 1000])
        there |= {name for name, look in seen.items() if str(look.state) in ("present", "delete_marker")}
    return there
