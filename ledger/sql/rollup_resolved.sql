    -- Parameters: begin, end timestamptz. By quarantine_resolved.
    SELECT 'quarantine_resolved', t.code, d.resolution, d.resolved_at, NULL::float8, 1
    FROM ledger_deadletter d
    JOIN retention_tenant t ON t.id = d.tenant_id
    WHERE d.resolved_at >= %(begin)s AND d.resolved_at < %(end)s
