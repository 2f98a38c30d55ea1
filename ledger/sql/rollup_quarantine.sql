    -- Parameters: begin, end timestamptz. By quarantine_by_time; the fence keeps the planner from beginning elsewhere.
    SELECT 'quarantined', t.code, d.failure_class, d.entered_at, NULL::float8, 1
    FROM (
        SELECT tenant_id, failure_class, entered_at FROM ledger_deadletter
        WHERE entered_at >= %(begin)s AND entered_at < %(end)s
        OFFSET 0
    ) d
    JOIN retention_tenant t ON t.id = d.tenant_id
