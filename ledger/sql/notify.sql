-- Of the next chunk of deleted commands, mark those whose event is settled. Parameters: after, limit.
WITH chunk AS MATERIALIZED (
    SELECT c.id, c.event_id FROM ledger_cleanupcommand c
    WHERE c.state = 'deleted' AND c.id > %(after)s ORDER BY c.id LIMIT %(limit)s
),
settled AS MATERIALIZED (
    SELECT c.id FROM ledger_cleanupcommand c
    WHERE c.state = 'deleted' AND c.id IN (
        SELECT chunk.id FROM chunk JOIN webhooks_outboxevent e ON e.event_id = chunk.event_id
        WHERE e.settled_at IS NOT NULL
    )
    ORDER BY c.id FOR NO KEY UPDATE
),
marked AS (
    UPDATE ledger_cleanupcommand c SET state = 'notified', changed_at = statement_timestamp()
    FROM settled WHERE c.id = settled.id
    RETURNING c.id
)
SELECT (SELECT count(*) FROM chunk), (SELECT count(*) FROM marked), (SELECT max(id) FROM chunk)
