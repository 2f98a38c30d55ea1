-- Of the next chunk of deleted commands, mark those whose event is settled. Parameters: after, limit.
WITH chunk AS MATERIALIZED (
    SELECT c.id, c.event_id FROM ledger_cleanupcommand c
    WHERE c.state = 'deleted' AND c.id > %(after)s ORDER BY c.id LIMIT %(limit)s
),
settled AS MATERIALIZED (
    SELECT c.id FROM ledger_cleanupcommand c
    WHERE c.state = 'deleted' AND c.id = ANY (ARRAY(
        -- LIMIT has each event probed: a join could read the whole outbox for each of them.
        SELECT chunk.id FROM chunk CROSS JOIN LATERAL (
            SELECT o.settled_at FROM webhooks_outboxevent o WHERE o.event_id = chunk.event_id LIMIT 1
        ) e
        WHERE e.settled_at IS NOT NULL
    ))
    ORDER BY c.id FOR NO KEY UPDATE
),
marked AS (
    UPDATE ledger_cleanupcommand c SET state = 'notified', changed_at = statement_timestamp()
    FROM settled WHERE c.id = settled.id
    RETURNING c.id
)
SELECT (SELECT count(*) FROM chunk), (SELECT count(*) FROM marked), (SELECT max(id) FROM chunk)
