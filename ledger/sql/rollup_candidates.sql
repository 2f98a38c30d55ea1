    -- Parameters: begin, end timestamptz. By part_by_time; the fence keeps the planner from beginning elsewhere.
    SELECT 'candidates', t.code, r.mode, p.frozen_at, NULL::float8, p.item_count
    FROM (
        SELECT run_id, item_count, frozen_at FROM ledger_manifestpart
        WHERE frozen_at >= %(begin)s AND frozen_at < %(end)s AND item_count > 0
        OFFSET 0
    ) p
    JOIN ledger_cleanuprun r ON r.id = p.run_id
    JOIN retention_tenant t ON t.id = r.tenant_id
