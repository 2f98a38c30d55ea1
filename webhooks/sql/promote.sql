-- Parameters: endpoints bigint[] and lanes bigint[], pair by pair.
UPDATE webhooks_delivery d SET due_at = now()
FROM unnest(%(endpoints)s::bigint[], %(lanes)s::bigint[]) AS place (endpoint_id, lane_id)
CROSS JOIN LATERAL (
    SELECT id, due_at FROM webhooks_delivery o
    WHERE o.endpoint_id = place.endpoint_id AND o.lane_id = place.lane_id AND o.state = 'pending'
    ORDER BY o.sequence LIMIT 1
) AS head
WHERE d.id = head.id AND head.due_at = 'infinity'
