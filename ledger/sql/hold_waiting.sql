-- Hold a chunk of commands that nobody has and of which nothing is in doubt, unless the hold is over. Parameters: hold,
-- ids bigint[].
WITH chunk AS MATERIALIZED (
    SELECT c.id, c.run_id FROM ledger_cleanupcommand c
    WHERE c.id = ANY (%(ids)s::bigint[]) AND c.state = 'ready' AND c.lease_until IS NULL AND c.inspect_due IS NULL
        AND EXISTS (SELECT FROM retention_legalhold h WHERE h.id = %(hold)s AND h.released_at IS NULL)
    ORDER BY c.id FOR NO KEY UPDATE OF c
),
held AS (
    UPDATE ledger_cleanupcommand c
    SET state = 'held', held_by = 'us', hold_id = %(hold)s, changed_at = statement_timestamp()
    FROM chunk WHERE c.id = chunk.id AND c.id = ANY (%(ids)s::bigint[])
),
released AS (
    UPDATE ledger_commandtarget t SET active = false
    WHERE t.command_id = ANY (ARRAY(SELECT id FROM chunk)) AND t.active
),
tallied AS (
    INSERT INTO ledger_runtally (run_id, outcome, commands) SELECT run_id, 'held', count(*) FROM chunk GROUP BY run_id
)
SELECT count(*) FROM chunk
