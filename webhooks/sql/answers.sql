-- Parameters: endpoint bigint, "limit" int. The newest answers of an endpoint, the newest first. Those before its last successful
-- ping say nothing of it any more.
SELECT a.failure_class, a.finished_at, a.delivery_id, a.is_probe, a.status, a.error
FROM webhooks_deliveryattempt a
WHERE a.endpoint_id = %(endpoint)s AND a.finished_at IS NOT NULL AND a.finished_at > coalesce((
    SELECT max(p.finished_at) FROM webhooks_ping p WHERE p.endpoint_id = %(endpoint)s AND p.status BETWEEN 200 AND 299
), '-infinity')
ORDER BY a.finished_at DESC, a.id DESC LIMIT %(limit)s
