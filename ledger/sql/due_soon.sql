-- Seconds until the next command of a bucket is due, if that is soon. Parameters: bucket, soon (seconds), idle
-- bigint[] (tenants not to wait for).
SELECT extract(epoch FROM min(next.due_at) - now())::float
FROM ledger_turn t
CROSS JOIN unnest(ARRAY[0, 1, 2]::smallint[]) AS p(priority)
CROSS JOIN LATERAL (
    SELECT c.due_at FROM ledger_cleanupcommand c
    WHERE c.state = 'ready' AND c.bucket_id = t.bucket_id AND c.tenant_id = t.tenant_id AND c.priority = p.priority
        AND c.due_at > now() AND c.due_at <= now() + %(soon)s * interval '1 s'
    ORDER BY c.due_at, c.id LIMIT 1
) next
WHERE t.bucket_id = %(bucket)s AND t.tenant_id <> ALL (%(idle)s::bigint[])
