-- The command that has been due for the longest and that nobody executes, by the claim's index. Parameter: codes text[] (of
-- tenants; empty: all). What a pause, a stop or a closed window keeps back counts as well.
SELECT head.id, head.due_at
FROM ledger_turn t
JOIN retention_tenant n ON n.id = t.tenant_id AND (%(codes)s::text[] = '{}' OR n.code = ANY (%(codes)s::text[]))
CROSS JOIN unnest(ARRAY[0, 1, 2]::smallint[]) AS p (priority)
CROSS JOIN LATERAL (
    SELECT c.id, c.due_at FROM ledger_cleanupcommand c
    WHERE c.state = 'ready' AND c.bucket_id = t.bucket_id AND c.tenant_id = t.tenant_id AND c.priority = p.priority
        AND c.due_at <= now() AND (c.lease_until IS NULL OR c.lease_until < now())
    ORDER BY c.due_at, c.id LIMIT 1
) head
ORDER BY head.due_at, head.id LIMIT 1
