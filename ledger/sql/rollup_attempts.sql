    -- Parameters: begin, end timestamptz. By attempt_by_time; the fence keeps the planner from beginning elsewhere.
    SELECT 'delete_attempts', t.code, coalesce(nullif(a.failure_class, ''), a.outcome), a.settled_at, NULL::float8, 1
    FROM (
        SELECT command_id, outcome, failure_class, settled_at FROM ledger_attempt
        WHERE settled_at >= %(begin)s AND settled_at < %(end)s
        OFFSET 0
    ) a
    JOIN ledger_cleanupcommand c ON c.id = a.command_id
    JOIN retention_tenant t ON t.id = c.tenant_id
