-- Each endpoint that may be sent to, and for how many seconds its oldest delivery has been due. One that is catching up is left
-- out: what was held is as old as it is. So is what is being sent.
SELECT e.id, extract(epoch FROM now() - oldest.due_at)::float
FROM webhooks_endpoint e
CROSS JOIN LATERAL (
    SELECT d.due_at FROM webhooks_delivery d
    WHERE d.endpoint_id = e.id AND d.state = 'pending' AND d.due_at <= now()
        AND (d.lease_until IS NULL OR d.lease_until < now())
    ORDER BY d.due_at, d.id LIMIT 1
) oldest
WHERE e.disabled_at IS NULL AND e.circuit_step = 0 AND e.resumed_at IS NULL
    AND (e.paused_until IS NULL OR e.paused_until <= now())
ORDER BY e.id
