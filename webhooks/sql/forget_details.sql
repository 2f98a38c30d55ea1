-- Parameters: before timestamptz, after bigint (the last id seen), "limit" int. Returns how many were read, how many of them are
-- forgotten now, the last id, and whether all of them are too young.
WITH chunk AS MATERIALIZED (
    SELECT d.id, e.id AS event_id, e.emitted_at, e.settled_at
    FROM webhooks_detailedbody d JOIN webhooks_outboxevent e ON e.id = d.event_id
    WHERE d.id > %(after)s ORDER BY d.id LIMIT %(limit)s
),
forgotten AS (
    DELETE FROM webhooks_detailedbody d USING chunk
    WHERE d.id = chunk.id AND chunk.settled_at < %(before)s AND NOT EXISTS (
        SELECT FROM webhooks_delivery o WHERE o.event_id = chunk.event_id AND o.state = 'pending'
    )
    RETURNING d.id
)
SELECT count(*), (SELECT count(*) FROM forgotten), max(id), min(emitted_at) >= %(before)s FROM chunk
