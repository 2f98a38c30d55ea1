-- Milliseconds that 95 of 100 attempts took at most, of the last ten thousand of each endpoint within an hour.
SELECT
    percentile_disc(0.95) WITHIN GROUP (ORDER BY a.dns_ms), percentile_disc(0.95) WITHIN GROUP (ORDER BY a.connect_ms),
    percentile_disc(0.95) WITHIN GROUP (ORDER BY a.tls_ms), percentile_disc(0.95) WITHIN GROUP (ORDER BY a.first_byte_ms),
    percentile_disc(0.95) WITHIN GROUP (ORDER BY a.milliseconds)
FROM webhooks_endpoint e
CROSS JOIN LATERAL (
    SELECT dns_ms, connect_ms, tls_ms, first_byte_ms, milliseconds FROM webhooks_deliveryattempt
    WHERE endpoint_id = e.id AND finished_at > now() - interval '1 hour'
    ORDER BY finished_at DESC LIMIT 10000
) a
