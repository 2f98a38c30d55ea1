-- Parameters: endpoint bigint, keys bigint[], "limit" int, lease (seconds), url text (as attempts keep it), probe boolean,
-- types text[] (subscribed to), resumed timestamptz or null.
-- now() and the literal state let the partial index bound the search; leased heads are skipped, at most as many as may be in
-- flight. The lease columns are in no index, so that the update stays on its page. An event's type is looked up head by head, as
-- a scalar subselect: as EXISTS the planner may hash every event there is.
WITH head AS MATERIALIZED (
    SELECT d.id FROM webhooks_delivery d
    WHERE d.endpoint_id = %(endpoint)s AND d.state = 'pending' AND d.due_at <= now()
        AND (d.lease_until IS NULL OR d.lease_until < now())
        AND (
            %(types)s::text[] = '{*}' OR d.round > 0
            OR (SELECT e.type FROM webhooks_outboxevent e WHERE e.id = d.event_id) = ANY (%(types)s::text[])
        )
    ORDER BY d.due_at, d.id LIMIT %(limit)s
    FOR NO KEY UPDATE OF d SKIP LOCKED
),
claimed AS (
    UPDATE webhooks_delivery d
    SET lease_token = d.lease_token + 1, lease_until = now() + %(lease)s * interval '1 second'
    FROM head WHERE d.id = head.id
    RETURNING d.id, d.event_id, d.lane_id, d.due_at, d.lease_token, d.attempts, d.detailed
),
started AS (
    INSERT INTO webhooks_deliveryattempt (delivery_id, endpoint_id, number, token, is_probe, started_at, url, key_ids, peer,
        failure_class, error)
    SELECT id, %(endpoint)s, lease_token, lease_token, %(probe)s, now(), %(url)s, %(keys)s, '', '', '' FROM claimed
    RETURNING id, delivery_id, number
)
SELECT
    c.id, s.id, s.number, e.event_id, coalesce(b.body, e.body), e.id, c.lane_id, c.lease_token, c.attempts,
    extract(epoch FROM statement_timestamp()), coalesce(e.emitted_at < %(resumed)s::timestamptz, false)
FROM claimed c
JOIN started s ON s.delivery_id = c.id
JOIN webhooks_outboxevent e ON e.id = c.event_id
LEFT JOIN webhooks_detailedbody b ON c.detailed AND b.event_id = c.event_id
ORDER BY c.due_at, c.id
