-- What is open in quarantine by failure class: since when the oldest is, and how many there are. By quarantine_waiting, from one class
-- of a tenant to the next, however many entries and causes there are. Parameters: codes text[] (of tenants; empty: all), counted int
-- (of each tenant and class, at most).
WITH RECURSIVE tenant AS MATERIALIZED (
    SELECT id FROM retention_tenant WHERE %(codes)s::text[] = '{}' OR code = ANY (%(codes)s::text[])
),
waiting AS (
    SELECT head.* FROM tenant CROSS JOIN LATERAL (
        SELECT d.tenant_id, d.failure_class, d.entered_at FROM ledger_deadletter d
        WHERE d.resolved_at IS NULL AND d.tenant_id = tenant.id ORDER BY d.failure_class, d.entered_at LIMIT 1
    ) head
    UNION ALL
    SELECT following.* FROM waiting CROSS JOIN LATERAL (
        SELECT d.tenant_id, d.failure_class, d.entered_at FROM ledger_deadletter d
        WHERE d.resolved_at IS NULL AND d.tenant_id = waiting.tenant_id AND d.failure_class > waiting.failure_class
        ORDER BY d.failure_class, d.entered_at LIMIT 1
    ) following
)
SELECT waiting.failure_class, min(waiting.entered_at), sum(own.n)::bigint
FROM waiting CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM ledger_deadletter d
        WHERE d.resolved_at IS NULL AND d.tenant_id = waiting.tenant_id AND d.failure_class = waiting.failure_class
        LIMIT %(counted)s
    ) d
) own
GROUP BY waiting.failure_class ORDER BY waiting.failure_class
