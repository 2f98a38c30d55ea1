-- Endpoints that may be sent to (enabled, not paused, the circuit closed or due for a probe) with a head that is due and that
-- nobody is sending. The subselect stops at the first; without its ORDER BY it would look for one through the whole table.
SELECT e.id FROM webhooks_endpoint e
WHERE e.disabled_at IS NULL
    AND (e.paused_until IS NULL OR e.paused_until <= now()) AND (e.open_until IS NULL OR e.open_until <= now())
    AND (
        SELECT 1 FROM webhooks_delivery d
        WHERE d.endpoint_id = e.id AND d.state = 'pending' AND d.due_at <= now()
            AND (d.lease_until IS NULL OR d.lease_until < now())
        ORDER BY d.due_at, d.id LIMIT 1
    ) IS NOT NULL
