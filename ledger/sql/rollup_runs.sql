    -- Parameters: begin, end timestamptz. By run_by_end. A run is drained from when it was authorised until its counts add up.
    SELECT 'run_drain', t.code, '', r.ended_at, extract(epoch FROM r.ended_at - r.authorised_at)::float8, 1
    FROM ledger_cleanuprun r
    JOIN retention_tenant t ON t.id = r.tenant_id
    WHERE r.ended_at >= %(begin)s AND r.ended_at < %(end)s AND r.state = 'closed' AND r.authorised_at IS NOT NULL
