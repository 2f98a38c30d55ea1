-- Seconds until the next delivery of an enabled endpoint may be sent, if that is soon. Parameters: soon, gap (seconds).
-- What may be sent already was not claimed for a reason, a full endpoint or a secret that does not open: nobody waits for that.
-- An endpoint that catches up may be sent to once more after a gap.
SELECT extract(epoch FROM min(greatest(next.due_at, free.at)) - now())::float
FROM webhooks_endpoint e
CROSS JOIN LATERAL (
    SELECT greatest(
        e.paused_until, e.open_until, CASE WHEN e.resumed_at IS NOT NULL THEN now() + %(gap)s * interval '1 s' END
    ) AS at
) free
CROSS JOIN LATERAL (
    SELECT d.due_at FROM webhooks_delivery d
    WHERE d.state = 'pending' AND d.endpoint_id = e.id
        AND d.due_at > CASE WHEN free.at > now() THEN '-infinity' ELSE now() END
        AND d.due_at <= now() + %(soon)s * interval '1 s'
        AND (d.lease_until IS NULL OR d.lease_until < now())
    ORDER BY d.due_at LIMIT 1
) next
WHERE e.disabled_at IS NULL AND (free.at IS NULL OR free.at <= now() + %(soon)s * interval '1 s')
