-- Endpoints that may be sent to (enabled, not paused, the circuit closed or due for a probe) with a head that is due and that
-- nobody is sending, the longest due first. The subselect stops at the first; without its ORDER BY it would look for one through
-- the whole table.
SELECT e.id
FROM webhooks_endpoint e
CROSS JOIN LATERAL (
    SELECT d.due_at FROM webhooks_delivery d
    WHERE d.endpoint_id = e.id AND d.state = 'pending' AND d.due_at <= now()
        AND (d.lease_until IS NULL OR d.lease_until < now())
    ORDER BY d.due_at, d.id LIMIT 1
) head
WHERE e.disabled_at IS NULL
    AND (e.paused_until IS NULL OR e.paused_until <= now()) AND (e.open_until IS NULL OR e.open_until <= now())
ORDER BY head.due_at, e.id
