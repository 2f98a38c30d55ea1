-- Record results that came under lost tokens and let their commands be looked at again; returns the commands told of.
-- Parameters: arrays id, token, late, cycle, outcome, charged, failure_class, detail, wait (seconds until the store has settled
-- what is in doubt); claimed_at, worker.
WITH told AS (
    INSERT INTO ledger_attempt (
        command_id, token, late, cycle, outcome, charged, failure_class, detail, claimed_at, settled_at, worker
    )
    SELECT u.*, %(claimed_at)s, statement_timestamp(), %(worker)s
    FROM unnest(
        %(id)s::bigint[], %(token)s::bigint[], %(late)s::boolean[], %(cycle)s::smallint[], %(outcome)s::text[],
        %(charged)s::boolean[], %(failure_class)s::text[], %(detail)s::text[]
    ) AS u (id, token, late, cycle, outcome, charged, failure_class, detail)
    WHERE NOT EXISTS (
        SELECT FROM ledger_attempt a
        WHERE a.command_id = u.id AND a.token = u.token AND NOT a.late AND a.outcome <> 'lease_lost'
    )
    ON CONFLICT DO NOTHING
    RETURNING command_id
),
locked AS (
    SELECT c.id, statement_timestamp() + u.wait * interval '1 s' AS look_at
    FROM ledger_cleanupcommand c JOIN unnest(%(id)s::bigint[], %(wait)s::float[]) AS u (id, wait) ON u.id = c.id
    WHERE c.id IN (SELECT command_id FROM told) AND c.state NOT IN ('deleted', 'notified')
    ORDER BY c.id FOR NO KEY UPDATE OF c
),
asked AS (
    UPDATE ledger_cleanupcommand c SET
        inspect_due = locked.look_at,
        due_at = CASE WHEN c.state = 'ready' THEN greatest(c.due_at, locked.look_at) ELSE c.due_at END
    FROM locked WHERE c.id = locked.id
)
SELECT command_id FROM told
