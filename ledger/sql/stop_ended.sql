-- How each claim of a stop's report ended, those that have not ended first: by the first outcome, under its token or a later
-- one, that leaves nothing in doubt; where there is none because it was parked or given back without one, by the command's
-- state. Parameters: commands bigint[], tokens bigint[], limit.
WITH told AS MATERIALIZED (
    SELECT c.id, c.key, u.token, coalesce(e.outcome, over.state) AS ended_as, coalesce(e.settled_at, over.changed_at) AS ended_at
    FROM unnest(%(commands)s::bigint[], %(tokens)s::bigint[]) AS u (id, token)
    CROSS JOIN LATERAL (SELECT * FROM ledger_cleanupcommand x WHERE x.id = u.id LIMIT 1) c
    LEFT JOIN LATERAL (
        SELECT a.outcome, a.settled_at FROM ledger_attempt a
        WHERE a.command_id = u.id AND a.token >= u.token AND NOT a.late AND a.outcome NOT IN ('lease_lost', 'ambiguous')
        ORDER BY a.token LIMIT 1
    ) e ON true
    LEFT JOIN LATERAL (
        SELECT CASE c.state WHEN 'ready' THEN 'not_sent' ELSE c.state END AS state, c.changed_at
        WHERE c.inspect_due IS NULL AND (c.lease_until IS NULL OR c.lease_token > u.token)
    ) over ON true
)
SELECT id, key, token, coalesce(ended_as, ''), ended_at, count(*) FILTER (WHERE ended_as IS NULL) OVER ()
FROM told
ORDER BY ended_at DESC NULLS FIRST, id
LIMIT %(limit)s
