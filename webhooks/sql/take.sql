-- Parameters: endpoint bigint, "full" int (the concurrency of an endpoint that is well). Locks the endpoint if it may be sent to.
SELECT
    id, url, event_types, duplicate_is_success, circuit_step, concurrency, resumed_at,
    circuit_step > 0 OR failing_since IS NOT NULL OR concurrency < %(full)s
FROM webhooks_endpoint
WHERE id = %(endpoint)s AND disabled_at IS NULL
    AND (paused_until IS NULL OR paused_until <= now()) AND (open_until IS NULL OR open_until <= now())
FOR NO KEY UPDATE SKIP LOCKED
