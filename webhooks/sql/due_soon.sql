-- Seconds until the next delivery of an enabled endpoint is due, if that is soon. Parameter: soon (seconds).
-- What is due already was not claimed for a reason, a full endpoint or a secret that does not open: nobody waits for that.
SELECT extract(epoch FROM min(next.due_at) - now())::float
FROM webhooks_endpoint e
CROSS JOIN LATERAL (
    SELECT d.due_at FROM webhooks_delivery d
    WHERE d.state = 'pending' AND d.endpoint_id = e.id
        AND d.due_at > now() AND d.due_at <= now() + %(soon)s * interval '1 s'
        AND (d.lease_until IS NULL OR d.lease_until < now())
    ORDER BY d.due_at LIMIT 1
) next
WHERE e.disabled_at IS NULL
