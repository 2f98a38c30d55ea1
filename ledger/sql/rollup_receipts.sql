    -- Parameters: begin, end timestamptz. By receipt_by_time; the fence keeps the planner from beginning elsewhere. What was gone
    -- already was not deleted late by us.
    SELECT
        'deletion', t.code, r.outcome, r.issued_at,
        CASE WHEN r.outcome <> 'already_absent' THEN extract(epoch FROM r.issued_at - c.eligible_since)::float8 END
    FROM (
        SELECT command_id, tenant_id, outcome, issued_at FROM ledger_receipt
        WHERE issued_at >= %(begin)s AND issued_at < %(end)s
        OFFSET 0
    ) r
    JOIN ledger_cleanupcommand c ON c.id = r.command_id
    JOIN retention_tenant t ON t.id = r.tenant_id
