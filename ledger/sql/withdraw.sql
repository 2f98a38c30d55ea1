-- Withdraw a chunk of what may never be executed: commands of cancelled runs, and of revisions that another has superseded.
-- Leased ones are their workers' to give back, and those in doubt must be looked at first. Parameters: limit.
WITH doomed AS MATERIALIZED (
    SELECT c.id, c.run_id, CASE r.state
        WHEN 'cancelled' THEN 'The run was cancelled: ' || r.end_reason
        ELSE 'A newer revision of its policy governs it now.'
    END AS reason
    FROM ledger_cleanuprun r JOIN ledger_cleanupcommand c ON c.run_id = r.id AND c.state = 'ready'
    WHERE c.lease_until IS NULL AND c.inspect_due IS NULL AND (r.state = 'cancelled' OR (
        r.state IN ('draining', 'paused', 'tripped') AND EXISTS (
            -- One that governs everything; of the others, claiming finds out what they govern.
            SELECT FROM retention_policyrevision n JOIN retention_policyrevision own ON own.id = c.revision_id
            WHERE n.policy_id = r.policy_id AND n.number > own.number AND n.retroactive
                AND n.in_force_from <= now() AND n.in_force_from > r.as_of
        )
    ))
    ORDER BY c.id LIMIT %(limit)s FOR NO KEY UPDATE OF c
),
withdrawn AS (
    UPDATE ledger_cleanupcommand c SET state = 'withdrawn', reason = doomed.reason, changed_at = statement_timestamp()
    FROM doomed WHERE c.id = doomed.id AND c.id = ANY (ARRAY(SELECT id FROM doomed))
),
released AS (
    UPDATE ledger_commandtarget t SET active = false
    WHERE t.command_id = ANY (ARRAY(SELECT id FROM doomed)) AND t.active
),
tallied AS (
    INSERT INTO ledger_runtally (run_id, outcome, commands) SELECT run_id, 'withdrawn', count(*) FROM doomed GROUP BY run_id
)
SELECT count(*) FROM doomed
