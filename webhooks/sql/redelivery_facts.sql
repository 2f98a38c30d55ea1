-- Parameters: ids bigint[]. What decides about each chosen delivery, under its lock.
SELECT
    d.id, d.event_id, d.endpoint_id, d.state, d.cancel_reason, d.due_at = 'infinity', d.due_at > now(),
    coalesce(d.lease_until > now(), false), e.retired_at IS NOT NULL, e.disabled_reason, last.round,
    last.state = 'pending'
FROM webhooks_delivery d
JOIN webhooks_endpoint e ON e.id = d.endpoint_id
CROSS JOIN LATERAL (
    SELECT o.round, o.state FROM webhooks_delivery o
    WHERE o.event_id = d.event_id AND o.endpoint_id = d.endpoint_id ORDER BY o.round DESC LIMIT 1
) AS last
WHERE d.id = ANY (%(ids)s::bigint[]) ORDER BY d.id
