    -- Parameters: begin, end timestamptz. By command_by_publication; the fence keeps the planner from beginning elsewhere.
    SELECT 'published', t.code, '', c.published_at, NULL::float8, 1
    FROM (
        SELECT tenant_id, published_at FROM ledger_cleanupcommand
        WHERE published_at >= %(begin)s AND published_at < %(end)s
        OFFSET 0
    ) c
    JOIN retention_tenant t ON t.id = c.tenant_id
