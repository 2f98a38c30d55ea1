-- Parameters: arrays, one element for each attempt that ended under its token; headers as the text of JSON.
WITH ended AS MATERIALIZED (
    SELECT * FROM unnest(
        %(deliveries)s::bigint[], %(attempts)s::bigint[], %(states)s::text[], %(charges)s::int[], %(delays)s::float8[],
        %(statuses)s::int[], %(classes)s::text[], %(errors)s::text[], %(responses)s::bytea[], %(milliseconds)s::int[],
        %(headers)s::text[], %(bytes_read)s::int[], %(truncated)s::boolean[], %(peers)s::text[], %(reused)s::boolean[],
        %(resent)s::boolean[], %(dns_ms)s::int[], %(connect_ms)s::int[], %(tls_ms)s::int[], %(first_byte_ms)s::int[]
    ) AS e (
        delivery_id, attempt_id, state, charge, delay, status, failure_class, error, response, milliseconds, headers, bytes_read,
        truncated, peer, reused, resent, dns_ms, connect_ms, tls_ms, first_byte_ms
    )
),
attempt AS (
    UPDATE webhooks_deliveryattempt a SET
        finished_at = statement_timestamp(), status = e.status, failure_class = e.failure_class, error = e.error,
        response = e.response, milliseconds = e.milliseconds, headers = e.headers::jsonb, bytes_read = e.bytes_read,
        truncated = e.truncated, peer = e.peer, reused = e.reused, resent = e.resent, dns_ms = e.dns_ms,
        connect_ms = e.connect_ms, tls_ms = e.tls_ms, first_byte_ms = e.first_byte_ms
    FROM ended e WHERE a.id = e.attempt_id
)
UPDATE webhooks_delivery d SET
    state = e.state,
    attempts = d.attempts + e.charge,
    due_at = CASE WHEN e.delay IS NULL THEN d.due_at ELSE statement_timestamp() + e.delay * interval '1 second' END,
    lease_until = NULL,
    last_status = e.status,
    last_class = e.failure_class,
    last_error = e.error,
    finished_at = CASE WHEN e.state <> 'pending' THEN statement_timestamp() END
FROM ended e WHERE d.id = e.delivery_id
