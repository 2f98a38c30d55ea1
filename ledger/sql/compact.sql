-- Write the summaries of a chunk of commands that nothing can move any more, and return the commands.
-- Parameters: older_than (seconds), limit, instant (the format of times).
WITH chosen AS MATERIALIZED (
    SELECT id FROM ledger_cleanupcommand
    WHERE state = 'notified' AND compacted_at IS NULL AND changed_at < now() - %(older_than)s * interval '1 s'
    ORDER BY changed_at LIMIT %(limit)s
),
locked AS MATERIALIZED (
    SELECT c.id, c.claims FROM ledger_cleanupcommand c
    WHERE c.id = ANY (ARRAY(SELECT id FROM chosen)) AND c.compacted_at IS NULL
    ORDER BY c.id FOR NO KEY UPDATE OF c SKIP LOCKED
)
INSERT INTO ledger_commandsummary (command_id, summary, compacted_at)
SELECT
    locked.id,
    jsonb_build_object(
        'schema', 1, 'claims', locked.claims, 'targets', target.told, 'requests', request.told, 'attempts', attempt.told
    ),
    now()
FROM locked
CROSS JOIN LATERAL (
    -- No names: those stand in the receipt's locators, which have a retention of their own.
    SELECT jsonb_agg(jsonb_build_object(
        'object_version', t.object_version_id, 'role', t.role,
        'gone_at', to_char(t.gone_at AT TIME ZONE 'UTC', %(instant)s)
    ) ORDER BY t.ordinal) AS told
    FROM ledger_commandtarget t WHERE t.command_id = locked.id
) target
CROSS JOIN LATERAL (
    SELECT jsonb_build_object(
        'count', count(*), 'first', to_char(min(r.made_at) AT TIME ZONE 'UTC', %(instant)s),
        'last', to_char(max(r.made_at) AT TIME ZONE 'UTC', %(instant)s)
    ) AS told
    FROM ledger_request r WHERE r.command_id = locked.id
) request
CROSS JOIN LATERAL (
    SELECT jsonb_build_object(
        'count', coalesce(sum(o.number), 0), 'charged', coalesce(sum(o.charged), 0), 'late', coalesce(sum(o.late), 0),
        'by_outcome', coalesce(jsonb_object_agg(o.outcome, o.number) FILTER (WHERE o.outcome IS NOT NULL), '{}'),
        'first', to_char(min(o.first) AT TIME ZONE 'UTC', %(instant)s),
        'last', to_char(max(o.last) AT TIME ZONE 'UTC', %(instant)s)
    ) AS told
    FROM (
        SELECT
            a.outcome, count(*) AS number, count(*) FILTER (WHERE a.charged) AS charged,
            count(*) FILTER (WHERE a.late) AS late, min(a.settled_at) AS first, max(a.settled_at) AS last
        FROM ledger_attempt a WHERE a.command_id = locked.id GROUP BY a.outcome
    ) o
) attempt
ORDER BY locked.id
RETURNING command_id
