-- Parameters: deliveries bigint[] and tokens bigint[], pair by pair. The subselect probes delivery_open for each; ordered, since
-- NOT EXISTS may become a join through the whole table.
SELECT d.id, (
    SELECT 1 FROM webhooks_delivery o
    WHERE o.endpoint_id = d.endpoint_id AND o.lane_id = d.lane_id AND o.state = 'pending' AND o.sequence > d.sequence
    ORDER BY o.sequence LIMIT 1
) IS NOT NULL
FROM webhooks_delivery d
JOIN unnest(%(deliveries)s::bigint[], %(tokens)s::bigint[]) AS held (id, token)
    ON d.id = held.id AND d.lease_token = held.token
WHERE d.state = 'pending' AND d.lease_until IS NOT NULL
ORDER BY d.id FOR NO KEY UPDATE OF d
