    -- Parameters: begin, end timestamptz. By receipt_by_time; the fence keeps the planner from beginning elsewhere. What was gone
    -- already was not deleted late by us. A command in a later cycle had been parked, and somebody had it go on.
    SELECT m.metric, t.code, m.label, r.issued_at, m.took, 1
    FROM (
        SELECT command_id, tenant_id, outcome, issued_at FROM ledger_receipt
        WHERE issued_at >= %(begin)s AND issued_at < %(end)s
        OFFSET 0
    ) r
    JOIN ledger_cleanupcommand c ON c.id = r.command_id
    JOIN retention_tenant t ON t.id = r.tenant_id
    CROSS JOIN LATERAL (
        SELECT
            'deletion', r.outcome,
            CASE WHEN r.outcome <> 'already_absent' THEN extract(epoch FROM r.issued_at - c.eligible_since)::float8 END
        UNION ALL
        SELECT 'replay_success', d.kind, NULL FROM ledger_decision d WHERE d.command_id = c.id AND d.cycle = c.cycle
    ) m (metric, label, took)
