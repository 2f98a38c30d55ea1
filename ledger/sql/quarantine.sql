-- Open a quarantine entry for commands that have just died; returns the entries' ids. Parameters:
-- arrays id, error, next_action, code, status.
INSERT INTO ledger_deadletter (
    command_id, cycle, tenant_id, bucket_id, run_id, policy_id, key, version_id, failure_class, storage_code, http_status,
    attempts, first_failed_at, first_error, last_error, next_action, entered_at
)
SELECT
    c.id, c.cycle, c.tenant_id, c.bucket_id, c.run_id, c.policy_id, t.key, t.version_id, c.failure_class, u.code, u.status,
    c.attempts, coalesce(f.settled_at, statement_timestamp()), coalesce(f.detail, u.error), u.error, u.next_action,
    statement_timestamp()
FROM unnest(%(id)s::bigint[], %(error)s::text[], %(next_action)s::text[], %(code)s::text[], %(status)s::smallint[])
    AS u (id, error, next_action, code, status)
JOIN ledger_cleanupcommand c ON c.id = u.id
JOIN ledger_commandtarget t ON t.command_id = c.id AND t.ordinal = 1
LEFT JOIN LATERAL (
    SELECT a.detail, a.settled_at FROM ledger_attempt a
    WHERE a.command_id = c.id AND a.cycle = c.cycle AND a.failure_class <> '' ORDER BY a.token LIMIT 1
) f ON true
ORDER BY c.id
RETURNING id
