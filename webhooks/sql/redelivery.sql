-- Parameters: ids bigint[] and rounds int[], pair by pair; by bigint. A row of its own, in no lane.
INSERT INTO webhooks_delivery (
    event_id, endpoint_id, tenant, round, requested_by_id, lane_id, sequence, detailed, state, due_at, attempts, lease_token,
    last_class, last_error, cancel_reason
)
SELECT
    d.event_id, d.endpoint_id, d.tenant, again.round, %(by)s, NULL, d.sequence, d.detailed, 'pending', now(), 0, 0, '', '', ''
FROM unnest(%(ids)s::bigint[], %(rounds)s::int[]) AS again (id, round)
JOIN webhooks_delivery d ON d.id = again.id
ORDER BY d.id
RETURNING id, event_id, endpoint_id
