-- Take the next turn in a bucket. Parameters: bucket, oldest_every, idle bigint[] (tenants that have no turn). Turns are
-- counted for the whole bucket: every so many, whoever has waited longest comes, even where others always have something more
-- urgent.
WITH taken AS MATERIALIZED (
    SELECT mod(sum(turns) + 1, %(oldest_every)s) = 0 AS oldest FROM ledger_turn WHERE bucket_id = %(bucket)s
),
waiting AS (
    SELECT t.id, t.last_turn, taken.oldest, due.priorities, due.urgent
    FROM taken CROSS JOIN ledger_turn t
    CROSS JOIN LATERAL (
        SELECT
            array_agg(head.priority ORDER BY CASE WHEN taken.oldest THEN head.due_at END, head.priority)
                AS priorities,
            min(head.priority) AS urgent
        FROM unnest(ARRAY[0, 1, 2]::smallint[]) AS p(priority)
        CROSS JOIN LATERAL (
            SELECT c.priority, c.due_at FROM ledger_cleanupcommand c
            WHERE c.state = 'ready' AND c.bucket_id = t.bucket_id AND c.tenant_id = t.tenant_id
                AND c.priority = p.priority AND c.due_at <= now() AND (c.lease_until IS NULL OR c.lease_until < now())
            ORDER BY c.due_at, c.id LIMIT 1
        ) head
    ) due
    WHERE t.bucket_id = %(bucket)s AND t.tenant_id <> ALL (%(idle)s::bigint[]) AND due.priorities IS NOT NULL
),
chosen AS (
    SELECT t.id FROM ledger_turn t JOIN waiting w ON w.id = t.id
    ORDER BY CASE WHEN w.oldest THEN 0 ELSE w.urgent END, w.last_turn
    LIMIT 1 FOR NO KEY UPDATE OF t
)
UPDATE ledger_turn t SET last_turn = clock_timestamp(), turns = t.turns + 1
FROM chosen JOIN waiting w ON w.id = chosen.id
WHERE t.id = chosen.id
RETURNING t.tenant_id, w.priorities
