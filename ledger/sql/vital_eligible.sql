-- What is eligible for the longest and still there: of each tenant its oldest ready command (command_eligible), and of each run the
-- oldest item of the parts that it has frozen and not published. Parameters: codes text[] (of tenants; empty: all), open text[]
-- (states of runs). Returns the command or the run, and since when; no row where nothing is left.
WITH tenant AS MATERIALIZED (
    SELECT id FROM retention_tenant WHERE %(codes)s::text[] = '{}' OR code = ANY (%(codes)s::text[])
)
SELECT command_id, run_id, since FROM (
    SELECT head.id AS command_id, NULL::bigint AS run_id, head.eligible_since AS since
    FROM tenant CROSS JOIN LATERAL (
        SELECT c.id, c.eligible_since FROM ledger_cleanupcommand c
        WHERE c.state = 'ready' AND c.tenant_id = tenant.id ORDER BY c.eligible_since LIMIT 1
    ) head
    UNION ALL
    SELECT NULL, r.id, part.oldest
    FROM ledger_cleanuprun r CROSS JOIN LATERAL (
        SELECT min(p.oldest) AS oldest FROM ledger_manifestpart p WHERE p.run_id = r.id AND p.number > r.published_parts
    ) part
    WHERE r.state = ANY (%(open)s) AND r.mode = 'enforce' AND r.tenant_id IN (SELECT id FROM tenant)
        AND part.oldest IS NOT NULL
) waiting
ORDER BY since LIMIT 1
