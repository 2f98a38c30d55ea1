-- Parameters: endpoints bigint[], counted int, answers int. Each part walks an index and stops: of deliveries the claim's, of
-- attempts `attempt_answers`.
SELECT e.id, nullif(oldest.due_at, 'infinity'), pending.count, answer.succeeded, answer.failed, statement_timestamp()
FROM webhooks_endpoint e
LEFT JOIN LATERAL (
    SELECT due_at FROM webhooks_delivery d WHERE d.endpoint_id = e.id AND d.state = 'pending' ORDER BY due_at, id LIMIT 1
) AS oldest ON true
CROSS JOIN LATERAL (
    SELECT count(*) FROM (
        SELECT FROM webhooks_delivery d WHERE d.endpoint_id = e.id AND d.state = 'pending' LIMIT %(counted)s
    ) AS counted
) AS pending
CROSS JOIN LATERAL (
    SELECT
        max(finished_at) FILTER (WHERE failure_class IN ('', 'delivered_duplicate')) AS succeeded,
        max(finished_at) FILTER (WHERE failure_class NOT IN ('', 'delivered_duplicate')) AS failed
    FROM (
        SELECT finished_at, failure_class FROM webhooks_deliveryattempt a
        WHERE a.endpoint_id = e.id AND a.finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT %(answers)s
    ) AS latest
) AS answer
WHERE e.id = ANY (%(endpoints)s)
