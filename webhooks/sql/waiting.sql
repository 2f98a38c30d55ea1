-- Parameters: endpoint bigint, after bigint (the last id seen), "limit" int. Walks the claim's index at its far end.
SELECT d.id, d.lane_id, (
    SELECT 1 FROM webhooks_delivery o
    WHERE o.endpoint_id = d.endpoint_id AND o.lane_id = d.lane_id AND o.state = 'pending' AND o.sequence < d.sequence
    ORDER BY o.sequence LIMIT 1
) IS NULL
FROM webhooks_delivery d
WHERE d.endpoint_id = %(endpoint)s AND d.state = 'pending' AND d.due_at = 'infinity' AND d.id > %(after)s
ORDER BY d.id LIMIT %(limit)s
