-- Open quarantine entries by class: how many, whether they were all counted, how many of those entered before `late`, and when the
-- oldest did. Parameters: codes text[] (of tenants; empty: all), classes text[], cap int (of one tenant and class, the oldest
-- first), late (seconds). Each part is a stretch of quarantine_open.
SELECT k.class, sum(least(entry.n, %(cap)s))::bigint, bool_and(entry.n <= %(cap)s), sum(entry.late)::bigint, min(entry.oldest)
FROM retention_tenant t
CROSS JOIN unnest(%(classes)s::text[]) AS k (class)
CROSS JOIN LATERAL (
    SELECT
        count(*) AS n, min(entered_at) AS oldest,
        count(*) FILTER (WHERE entered_at < now() - %(late)s * interval '1 s') AS late
    FROM (
        SELECT entered_at FROM ledger_deadletter
        WHERE tenant_id = t.id AND failure_class = k.class AND resolved_at IS NULL
        ORDER BY entered_at LIMIT %(cap)s + 1
    ) counted
) entry
WHERE (%(codes)s::text[] = '{}' OR t.code = ANY (%(codes)s::text[])) AND entry.n > 0
GROUP BY k.class ORDER BY 2 DESC, 1
