-- The delivery that is owed for the longest, of each tenant by delivery_owed. Parameter: codes text[] (of tenants; empty: all).
-- Returns the delivery, and when its event was emitted.
SELECT head.id, e.emitted_at
FROM (SELECT DISTINCT tenant FROM webhooks_endpoint WHERE %(codes)s::text[] = '{}' OR tenant = ANY (%(codes)s::text[])) t
CROSS JOIN LATERAL (
    SELECT d.id, d.event_id FROM webhooks_delivery d
    WHERE d.tenant = t.tenant AND d.state = 'pending' ORDER BY d.id LIMIT 1
) head
JOIN webhooks_outboxevent e ON e.id = head.event_id
ORDER BY e.emitted_at LIMIT 1
