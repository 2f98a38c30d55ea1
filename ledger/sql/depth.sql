-- Open quarantine entries by class: how many, counted up to `counted` for each tenant and class, and since when the oldest
-- waits. Parameters: classes text[], tenants text[] (codes; NULL: every tenant), counted int.
SELECT c.class, sum(least(d.number, %(counted)s))::bigint, min(d.since), bool_or(d.number > %(counted)s)
FROM unnest(%(classes)s::text[]) AS c (class)
CROSS JOIN retention_tenant t
CROSS JOIN LATERAL (
    SELECT count(*) AS number, min(entered_at) AS since FROM (
        SELECT entered_at FROM ledger_deadletter
        WHERE resolved_at IS NULL AND tenant_id = t.id AND failure_class = c.class
        ORDER BY entered_at LIMIT %(counted)s + 1
    ) oldest
) d
WHERE d.number > 0 AND (%(tenants)s::text[] IS NULL OR t.code = ANY (%(tenants)s::text[]))
GROUP BY c.class ORDER BY min(d.since)
