-- Close what was in flight and is settled: by the first outcome, under its token or a later one, that leaves nothing in
-- doubt; where there is none because it was parked without being claimed again, by the command's state.
UPDATE ledger_inflight f SET ended_at = statement_timestamp(), ended_as = e.ended_as
FROM (
    SELECT o.id, coalesce(
        (
            SELECT a.outcome FROM ledger_attempt a
            WHERE a.command_id = o.command_id AND a.token >= o.token AND NOT a.late
                AND a.outcome NOT IN ('lease_lost', 'ambiguous')
            ORDER BY a.token LIMIT 1
        ),
        CASE WHEN c.state <> 'ready' AND c.inspect_due IS NULL THEN c.state END
    ) AS ended_as
    FROM ledger_inflight o JOIN ledger_cleanupcommand c ON c.id = o.command_id
    WHERE o.ended_at IS NULL
) e
WHERE f.id = e.id AND e.ended_as IS NOT NULL AND f.ended_at IS NULL
