-- How many objects have been eligible for longer than so many seconds and are still there: of each tenant its ready commands
-- (command_eligible), and of each open enforcing run the items (item_by_since) of parts that it has not published. Parameters:
-- codes text[] (of tenants; empty: all), open text[] (states of runs), seconds, counted int (of each tenant and run, at most).
WITH tenant AS MATERIALIZED (
    SELECT id FROM retention_tenant WHERE %(codes)s::text[] = '{}' OR code = ANY (%(codes)s::text[])
)
SELECT coalesce(sum(n), 0)::bigint FROM (
    SELECT own.n FROM tenant CROSS JOIN LATERAL (
        SELECT count(*) AS n FROM (
            SELECT FROM ledger_cleanupcommand c
            WHERE c.state = 'ready' AND c.tenant_id = tenant.id AND c.eligible_since < now() - %(seconds)s * interval '1 s'
            LIMIT %(counted)s
        ) c
    ) own
    UNION ALL
    SELECT own.n
    FROM ledger_cleanuprun r
    CROSS JOIN LATERAL (
        SELECT coalesce(sum(p.item_count), 0) AS items FROM ledger_manifestpart p
        WHERE p.run_id = r.id AND p.number <= r.published_parts
    ) published
    CROSS JOIN LATERAL (
        SELECT count(*) AS n FROM (
            SELECT FROM ledger_manifestitem i
            WHERE i.run_id = r.id AND i.ordinal > published.items AND i.eligible_since < now() - %(seconds)s * interval '1 s'
            LIMIT %(counted)s
        ) i
    ) own
    WHERE r.state = ANY (%(open)s) AND r.mode = 'enforce' AND r.tenant_id IN (SELECT id FROM tenant)
        AND EXISTS (SELECT FROM ledger_manifestpart p WHERE p.run_id = r.id AND p.number > r.published_parts)
) counted
