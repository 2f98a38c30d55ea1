-- Parameters: arrays, one element for each attempt that ended under its token.
WITH ended AS MATERIALIZED (
    SELECT * FROM unnest(
        %(deliveries)s::bigint[], %(attempts)s::bigint[], %(states)s::text[], %(delays)s::float8[], %(statuses)s::int[],
        %(classes)s::text[], %(errors)s::text[], %(responses)s::bytea[], %(milliseconds)s::int[]
    ) AS e (delivery_id, attempt_id, state, delay, status, failure_class, error, response, milliseconds)
),
attempt AS (
    UPDATE webhooks_deliveryattempt a SET
        finished_at = statement_timestamp(), status = e.status, failure_class = e.failure_class, error = e.error,
        response = e.response, milliseconds = e.milliseconds
    FROM ended e WHERE a.id = e.attempt_id
)
UPDATE webhooks_delivery d SET
    state = e.state,
    attempts = d.attempts + 1,
    due_at = CASE WHEN e.delay IS NULL THEN d.due_at ELSE statement_timestamp() + e.delay * interval '1 second' END,
    lease_until = NULL,
    last_status = e.status,
    last_class = e.failure_class,
    last_error = e.error,
    finished_at = CASE WHEN e.state <> 'pending' THEN statement_timestamp() END
FROM ended e WHERE d.id = e.delivery_id
