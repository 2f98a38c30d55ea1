-- Parameters: counted int, lease (seconds). Pending: due, waiting, held; attempts in flight; attempts that never ended.
SELECT
    coalesce(sum(due.n) FILTER (WHERE e.disabled_at IS NULL), 0)::bigint,
    coalesce(sum(waiting.n) FILTER (WHERE e.disabled_at IS NULL), 0)::bigint,
    coalesce(sum(due.n + waiting.n) FILTER (WHERE e.disabled_at IS NOT NULL), 0)::bigint,
    coalesce(sum(flying.n), 0)::bigint,
    coalesce(sum(lost.n), 0)::bigint
FROM webhooks_endpoint e
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM webhooks_delivery d
        WHERE d.endpoint_id = e.id AND d.state = 'pending' AND d.due_at <= now() LIMIT %(counted)s
    ) x
) due
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM webhooks_delivery d
        WHERE d.endpoint_id = e.id AND d.state = 'pending' AND d.due_at > now() LIMIT %(counted)s
    ) x
) waiting
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM webhooks_deliveryattempt a
    WHERE a.endpoint_id = e.id AND a.finished_at IS NULL AND a.started_at > now() - %(lease)s * interval '1 s'
) flying
CROSS JOIN LATERAL (
    SELECT count(*) AS n FROM (
        SELECT FROM webhooks_deliveryattempt a
        WHERE a.endpoint_id = e.id AND a.finished_at IS NULL AND a.started_at <= now() - %(lease)s * interval '1 s'
        LIMIT %(counted)s
    ) x
) lost
