"""What must hold in the database after every step, whatever stopped where: each query returns what breaks it."""

from typing import Any, Final

from django.db import connection

# Every fact that is told once for ever, under the name and the occurrence that its event's id is made of.
FACTS: Final = """
    SELECT 'media.deleted' AS type, c.key AS name, '' AS occurrence FROM ledger_cleanupcommand c
    WHERE c.state IN ('deleted', 'notified')
    UNION ALL SELECT 'run.opened', key, '' FROM ledger_cleanuprun
    UNION ALL SELECT 'run.closed', key, '' FROM ledger_cleanuprun WHERE state IN ('closed', 'cancelled')
    UNION ALL SELECT 'hold.placed', id::text, '' FROM retention_legalhold
    UNION ALL SELECT 'hold.released', id::text, '' FROM retention_legalhold WHERE released_at IS NOT NULL
    UNION ALL SELECT 'quarantine.entered', c.key, d.cycle::text FROM ledger_deadletter d
        JOIN ledger_cleanupcommand c ON c.id = d.command_id
    UNION ALL SELECT 'quarantine.resolved', c.key, d.cycle::text FROM ledger_deadletter d
        JOIN ledger_cleanupcommand c ON c.id = d.command_id WHERE d.resolved_at IS NOT NULL
    UNION ALL SELECT 'alarm.raised', 'alarm:' || id, tenant FROM base_alarm WHERE announced_at IS NOT NULL AND tenant <> ''
    UNION ALL SELECT 'alarm.cleared', 'alarm:' || id, tenant FROM base_alarm
        WHERE end_announced_at IS NOT NULL AND tenant <> ''
"""
TOLD_ONCE: Final = f"""
    SELECT f.*, e.event_id, e.type, e.name FROM ({FACTS}) AS f FULL JOIN (
        SELECT * FROM webhooks_outboxevent WHERE type NOT IN ('run.needs_approval', 'run.tripped', 'endpoint.disabled')
    ) e ON (e.type, e.name, e.occurrence) = (f.type, f.name, f.occurrence)
    WHERE f.type IS NULL OR e.type IS NULL
"""
# Facts that a run can bring about more than once stand in the audit record, in the same transaction.
TOLD_EACH_TIME: Final = """
    SELECT r.key, told.* FROM ledger_cleanuprun r CROSS JOIN LATERAL (SELECT
        (SELECT count(*) FROM base_auditevent a WHERE a.subject_type = 'ledger.cleanuprun' AND a.subject_id = r.id::text AND (
            a.action = 'run.sealed' AND a.after ->> 'state' = 'needs_approval'
            OR a.action IN ('run.exempt', 'run.extend') AND a.before ->> 'state' = 'cooling_off')) AS waits,
        (SELECT count(*) FROM webhooks_outboxevent e WHERE e.name = r.key AND e.type = 'run.needs_approval') AS waits_told,
        (SELECT count(*) FROM base_auditevent a WHERE a.subject_type = 'ledger.cleanuprun' AND a.subject_id = r.id::text
            AND a.action = 'run.tripped') AS trips,
        (SELECT count(*) FROM webhooks_outboxevent e WHERE e.name = r.key AND e.type = 'run.tripped') AS trips_told
    ) told WHERE (told.waits, told.trips) <> (told.waits_told, told.trips_told)
"""

ALWAYS = {
    "each fact has exactly one event, and each event its fact": TOLD_ONCE,
    "each trip and each wait for an approval has one event": TOLD_EACH_TIME,
    "tokens rise by one at each claim": """
        SELECT id, lease_token, claims FROM ledger_cleanupcommand WHERE lease_token <> claims""",
    "each cycle above 0 has exactly one decision": """
        SELECT c.id, c.cycle FROM ledger_cleanupcommand c
        WHERE c.cycle <> (SELECT count(*) FROM ledger_decision d WHERE d.command_id = c.id)""",
    "every request has a claim, and an authorised and sealed run older than itself": """
        SELECT r.command_id, r.token FROM ledger_request r
        JOIN ledger_cleanupcommand c ON c.id = r.command_id JOIN ledger_cleanuprun u ON u.id = c.run_id
        WHERE r.token > c.lease_token OR u.manifest_root = '' OR (u.sealed_at > r.made_at AND c.published_at > r.made_at)""",
    "an attempt that counts is of a token that was claimed": """
        SELECT a.command_id, a.token FROM ledger_attempt a JOIN ledger_cleanupcommand c ON c.id = a.command_id
        WHERE a.token > c.lease_token""",
    "nothing is parked while a request is unresolved": """
        SELECT c.id, c.state, r.token FROM ledger_cleanupcommand c JOIN ledger_request r ON r.command_id = c.id
        WHERE c.state IN ('held', 'dead', 'withdrawn') AND NOT EXISTS (
            SELECT FROM ledger_attempt a WHERE a.command_id = r.command_id AND a.token = r.token)""",
    "a lost lease with a request is followed by a look": """
        SELECT c.id, r.token FROM ledger_cleanupcommand c JOIN ledger_request r ON r.command_id = c.id
        JOIN ledger_attempt a ON a.command_id = r.command_id AND a.token = r.token AND a.outcome = 'lease_lost'
        WHERE c.inspect_due IS NULL AND r.made_at < a.settled_at AND NOT EXISTS (
            SELECT FROM ledger_attempt l WHERE l.command_id = r.command_id AND l.token > r.token
                AND l.outcome IN ('present', 'by_absence')
        ) AND c.state NOT IN ('deleted', 'notified')""",
    "active targets are those of open and of succeeded commands": """
        SELECT c.id, c.state, t.active FROM ledger_commandtarget t JOIN ledger_cleanupcommand c ON c.id = t.command_id
        WHERE c.state = 'ready' AND NOT t.active AND t.gone_at IS NULL
            OR c.state IN ('held', 'dead', 'withdrawn') AND t.active""",
    "an object version has at most one open command": """
        SELECT object_version_id FROM ledger_commandtarget t JOIN ledger_cleanupcommand c ON c.id = t.command_id
        WHERE c.state = 'ready' AND t.gone_at IS NULL GROUP BY object_version_id HAVING count(*) > 1""",
    "deleted is: all targets gone, one receipt, one event": """
        SELECT c.id, c.state, told.* FROM ledger_cleanupcommand c CROSS JOIN LATERAL (SELECT
            NOT EXISTS (SELECT FROM ledger_commandtarget t WHERE t.command_id = c.id AND t.gone_at IS NULL)
                AND (c.state IN ('deleted', 'notified') OR NOT EXISTS (
                    -- Gone before any request of ours: a person's turn, and no deletion.
                    SELECT FROM ledger_attempt a WHERE a.command_id = c.id AND a.failure_class = 'already_absent'
                )) AS gone,
            (SELECT count(*) FROM ledger_receipt r WHERE r.command_id = c.id) AS receipts,
            (SELECT count(*) FROM webhooks_outboxevent e WHERE e.command_key = c.key AND e.type = 'media.deleted') AS events
        ) told
        WHERE (told.gone, told.receipts, told.events) IS DISTINCT FROM
            CASE WHEN c.state IN ('deleted', 'notified') THEN (true, 1::bigint, 1::bigint)
            ELSE (false, 0::bigint, 0::bigint) END""",
    "an event has one delivery for each endpoint": """
        SELECT e.id FROM webhooks_outboxevent e WHERE (SELECT count(*) FROM webhooks_endpoint) <>
            (SELECT count(*) FROM webhooks_delivery d WHERE d.event_id = e.id)""",
    "sequences have no gap": """
        SELECT lane_id FROM webhooks_outboxevent GROUP BY lane_id HAVING max(sequence) <> count(*) OR min(sequence) <> 1""",
    "a lane that is not empty has one head, which is its first": """
        SELECT endpoint_id, lane_id FROM webhooks_delivery WHERE state = 'pending' GROUP BY endpoint_id, lane_id
        HAVING count(*) FILTER (WHERE due_at < 'infinity') <> 1
            OR min(sequence) <> min(sequence) FILTER (WHERE due_at < 'infinity')""",
    "notified follows from acknowledgements": """
        SELECT c.id FROM ledger_cleanupcommand c JOIN webhooks_outboxevent e ON e.event_id = c.event_id
        WHERE c.state = 'notified' AND e.settled_at IS NULL""",
    "a dead command has a quarantine entry, and only a dead one has an open entry": """
        SELECT c.id, c.state FROM ledger_cleanupcommand c WHERE
            c.state = 'dead' AND NOT EXISTS (
                SELECT FROM ledger_deadletter d WHERE d.command_id = c.id AND d.cycle = c.cycle)
            OR c.state <> 'dead' AND EXISTS (
                SELECT FROM ledger_deadletter d WHERE d.command_id = c.id AND d.resolved_at IS NULL)""",
    "from parked to deleted there is an incident": """
        SELECT i.command_id FROM ledger_incident i JOIN ledger_cleanupcommand c ON c.id = i.command_id
        WHERE c.state NOT IN ('deleted', 'notified')""",
    "a run that has closed has counts that add up": """
        SELECT r.id, r.counts, r.item_count FROM ledger_cleanuprun r WHERE r.state = 'closed' AND r.counts IS NOT NULL
            AND r.item_count <> (SELECT sum(value::bigint) FROM jsonb_each_text(r.counts))""",
    "the commands of a run are its items, less those left out and those adopted since": """
        SELECT r.id FROM ledger_cleanuprun r WHERE r.state IN ('draining', 'paused') AND (
            SELECT coalesce(sum(p.item_count), 0) FROM ledger_manifestpart p
            WHERE p.run_id = r.id AND p.number <= r.published_parts
        ) <> (SELECT count(*) FROM ledger_cleanupcommand c WHERE c.run_id = r.id)
            + (SELECT count(*) FROM ledger_skippeditem s WHERE s.run_id = r.id)""",
}

# Why the control read must not allow the requests for some versions: none of the commands that could have asked for one
# is under its token, in a draining run, in force, and free of holds on all of its targets.
MAY_SEND = """
    SELECT v.key, v.version_id, array_agg(refusal.why)
    FROM unnest(%(keys)s::text[], %(versions)s::text[]) AS v (key, version_id)
    LEFT JOIN ledger_commandtarget t ON t.bucket_id = %(bucket)s AND t.key = v.key AND t.version_id = v.version_id
    LEFT JOIN ledger_request r ON r.command_id = t.command_id
    LEFT JOIN ledger_cleanupcommand c ON c.id = r.command_id
    LEFT JOIN ledger_cleanuprun u ON u.id = c.run_id
    LEFT JOIN retention_retentionpolicy p ON p.id = c.policy_id
    LEFT JOIN retention_policyrevision n ON n.id = c.revision_id
    CROSS JOIN LATERAL (SELECT CASE
        WHEN c.id IS NULL THEN 'no request'
        WHEN c.state <> 'ready' THEN 'state ' || c.state
        WHEN c.lease_token <> r.token OR c.lease_until IS NULL THEN 'token lost'
        WHEN EXISTS (SELECT FROM ledger_attempt a WHERE a.command_id = c.id AND a.token = r.token) THEN 'settled'
        WHEN u.state NOT IN ('draining', 'closed') THEN 'run ' || u.state -- a replay goes on under a closed one
        WHEN p.suspended_at IS NOT NULL THEN 'suspended'
        WHEN EXISTS (SELECT FROM retention_stopswitch w WHERE w.lifted_at IS NULL AND (
            w.scope = 'everything' OR w.tenant_id = c.tenant_id OR w.policy_id = c.policy_id OR EXISTS (
                SELECT FROM ledger_commandtarget s WHERE s.command_id = c.id AND s.bucket_id = w.bucket_id
                    AND s.gone_at IS NULL))) THEN 'stopped'
        WHEN EXISTS (SELECT FROM retention_policyrevision w WHERE w.policy_id = c.policy_id AND w.number > n.number
            AND w.in_force_from <= now() AND w.retroactive) THEN 'superseded'
        WHEN EXISTS (
            SELECT FROM ledger_commandtarget s JOIN retention_holdprefix x ON x.bucket_id = s.bucket_id
                AND starts_with(s.key, x.prefix)
            JOIN retention_legalhold h ON h.id = x.hold_id AND h.released_at IS NULL
                AND (h.stored_to IS NULL OR s.stored_at < h.stored_to)
            WHERE s.command_id = c.id
        ) THEN 'held'
        WHEN EXISTS (
            SELECT FROM ledger_commandtarget s WHERE s.command_id = c.id AND NOT EXISTS (
                SELECT FROM retention_enforcement e WHERE e.bucket_id = s.bucket_id AND e.switched_off_at IS NULL
                    AND starts_with(s.key, e.prefix))
        ) THEN 'not enforced'
        WHEN t.gone_at IS NOT NULL THEN 'gone already'
    END AS why) refusal
    GROUP BY v.key, v.version_id HAVING bool_and(refusal.why IS NOT NULL)
"""

# Current versions while an older one was known to be there before the claim.
REVIVES = """
    SELECT t.key, t.version_id FROM retention_objectversion t JOIN retention_objectversion o
        ON o.bucket_id = t.bucket_id AND o.key = t.key AND o.gone_at IS NULL AND NOT o.is_delete_marker AND o.id <> t.id
        AND o.stored_at <= t.stored_at AND o.first_observed_at < %(begun)s
    WHERE t.bucket_id = %(bucket)s AND t.is_latest AND NOT t.is_delete_marker AND t.gone_at IS NULL
        AND (t.key, t.version_id) IN (SELECT * FROM unnest(%(keys)s::text[], %(versions)s::text[]))
"""

# Of versions that went by our hand, those that no receipt, note or open question speaks of.
UNACCOUNTED = """
    SELECT v.id, v.key, v.version_id, array_agg(c.id || ' ' || c.state) FROM retention_objectversion v
    LEFT JOIN ledger_commandtarget t ON t.object_version_id = v.id
    LEFT JOIN ledger_cleanupcommand c ON c.id = t.command_id
    WHERE v.id = ANY (%(versions)s)
    GROUP BY v.id, v.key, v.version_id
    HAVING NOT coalesce(bool_or(t.gone_at IS NOT NULL OR c.inspect_due IS NOT NULL OR c.state = 'ready' AND EXISTS (
        SELECT FROM ledger_request r WHERE r.command_id = c.id)), false)
"""

# Holds in force over a version that has just gone, which were reported without a word of its commands.
UNREPORTED = """
    SELECT h.id, v.key FROM retention_objectversion v
    JOIN retention_holdprefix x ON x.bucket_id = v.bucket_id AND starts_with(v.key, x.prefix)
    JOIN retention_legalhold h ON h.id = x.hold_id AND h.released_at IS NULL
        AND (h.stored_to IS NULL OR v.stored_at < h.stored_to)
    JOIN ledger_holdreport r ON r.hold_id = h.id
    WHERE v.id = %(version)s AND NOT EXISTS (
        SELECT FROM ledger_inflight f JOIN ledger_commandtarget t ON t.command_id = f.command_id
        WHERE f.report_id = h.id AND t.object_version_id = v.id)
"""

SAID_TO_BE_GONE = """
    SELECT b.name, t.key, t.version_id FROM ledger_commandtarget t JOIN retention_bucket b ON b.id = t.bucket_id
    WHERE t.gone_at IS NOT NULL
"""
COMMANDS = """
    SELECT c.id, c.cycle, c.state, array_agg(t.object_version_id ORDER BY t.ordinal)
    FROM ledger_cleanupcommand c JOIN ledger_commandtarget t ON t.command_id = c.id GROUP BY c.id
"""

AT_REST = {
    "every command has ended or waits for a person or a lock": """
        SELECT id, key, state, due_at - now(), lease_until - now(), inspect_due - now(), attempts, failure_class
        FROM ledger_cleanupcommand WHERE state IN ('ready', 'deleted')""",
    "every report of a hold is closed": "SELECT id FROM ledger_inflight WHERE ended_at IS NULL",
    "no question is open": "SELECT id, state FROM ledger_cleanupcommand WHERE inspect_due IS NOT NULL",
    "every run has ended": "SELECT key, state, item_count FROM ledger_cleanuprun WHERE state NOT IN ('closed', 'cancelled')",
    "closed runs that had commands have counts": """
        SELECT key FROM ledger_cleanuprun WHERE state = 'closed' AND item_count > 0 AND counts IS NULL""",
}


def rows(sql: str, **parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters or None)
        return list(cursor.fetchall())


def check(laws: dict[str, str]) -> None:
    """Raise AssertionError with the law that is broken and what breaks it. One round trip for all of them."""
    union = " UNION ALL ".join(
        f"SELECT '{name}', row_to_json(x)::text FROM ({query}) AS x" for name, query in laws.items()
    )
    broken = rows(union)
    assert not broken, "\n".join(f"broken: {name}: {found}" for name, found in broken)
