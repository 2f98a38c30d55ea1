-- Parameters: endpoint bigint, keys bigint[], "limit" int, lease (seconds), url text (as attempts keep it).
-- now() and the literal state let the partial index bound the search; leased heads are skipped, at most as many as may be in
-- flight. The lease columns are in no index, so that the update stays on its page.
WITH head AS MATERIALIZED (
    SELECT id FROM webhooks_delivery
    WHERE endpoint_id = %(endpoint)s AND state = 'pending' AND due_at <= now()
        AND (lease_until IS NULL OR lease_until < now())
    ORDER BY due_at, id LIMIT %(limit)s
    FOR NO KEY UPDATE SKIP LOCKED
),
claimed AS (
    UPDATE webhooks_delivery d
    SET lease_token = d.lease_token + 1, lease_until = now() + %(lease)s * interval '1 second'
    FROM head WHERE d.id = head.id
    RETURNING d.id, d.event_id, d.lane_id, d.due_at, d.lease_token, d.attempts
),
started AS (
    INSERT INTO webhooks_deliveryattempt (delivery_id, endpoint_id, number, token, is_probe, started_at, url, key_ids, peer,
        failure_class, error)
    SELECT id, %(endpoint)s, lease_token, lease_token, false, now(), %(url)s, %(keys)s, '', '', '' FROM claimed
    RETURNING id, delivery_id, number
)
SELECT
    c.id, s.id, s.number, e.event_id, e.body, e.id, c.lane_id, c.lease_token, c.attempts,
    extract(epoch FROM statement_timestamp())
FROM claimed c
JOIN started s ON s.delivery_id = c.id
JOIN webhooks_outboxevent e ON e.id = c.event_id
ORDER BY c.due_at, c.id
