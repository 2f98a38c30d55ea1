-- Open a quarantine entry for commands that have just died; returns the entries' ids. Parameters: arrays id, error, next_action.
INSERT INTO ledger_deadletter (
    command_id, cycle, tenant_id, bucket_id, failure_class, attempts, first_error, last_error, next_action, entered_at
)
SELECT
    c.id, c.cycle, c.tenant_id, c.bucket_id, c.failure_class, c.attempts,
    coalesce((
        SELECT a.detail FROM ledger_attempt a
        WHERE a.command_id = c.id AND a.cycle = c.cycle AND a.failure_class <> '' ORDER BY a.token LIMIT 1
    ), u.error),
    u.error, u.next_action, statement_timestamp()
FROM unnest(%(id)s::bigint[], %(error)s::text[], %(next_action)s::text[]) AS u (id, error, next_action)
JOIN ledger_cleanupcommand c ON c.id = u.id
ORDER BY c.id
RETURNING id
