-- The next chunk of an endpoint's pending deliveries, each with its place, and whether it is to be cancelled. Parameters: endpoint
-- bigint, due text and last bigint (where the walk stands), types text[] (what is owed), "limit" int.
-- Backwards through the claim's index: what waits behind its lane's head comes first, so that no delivery is promoted that is
-- about to be cancelled itself, and none moves behind the walk.
WITH chunk AS MATERIALIZED (
    SELECT d.id, d.event_id, d.lane_id, d.due_at, d.round, d.lease_until FROM webhooks_delivery d
    WHERE d.endpoint_id = %(endpoint)s AND d.state = 'pending' AND (d.due_at, d.id) < (%(due)s::timestamptz, %(last)s)
    ORDER BY d.due_at DESC, d.id DESC LIMIT %(limit)s
)
SELECT
    d.id, d.event_id, d.lane_id, e.type, d.due_at::text,
    (d.lease_until IS NULL OR d.lease_until < now()) AND e.type <> ALL (%(types)s::text[])
    -- What a person asked for is sent, whatever the endpoint subscribes to; but nothing to a retired one, to which no type is owed.
    AND (d.round = 0 OR %(types)s::text[] = '{}')
FROM chunk d
JOIN webhooks_outboxevent e ON e.id = d.event_id AND e.id = ANY (ARRAY(SELECT event_id FROM chunk)) -- probed, never walked
ORDER BY d.due_at DESC, d.id DESC
