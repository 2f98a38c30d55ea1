-- Parameters: endpoint bigint, lease (seconds). What the endpoint has in flight, and how many attempts began within a second.
SELECT
    (
        SELECT count(*) FROM webhooks_deliveryattempt
        WHERE endpoint_id = %(endpoint)s AND finished_at IS NULL AND started_at > now() - %(lease)s * interval '1 s'
    ),
    (
        SELECT count(*) FROM webhooks_deliveryattempt
        WHERE endpoint_id = %(endpoint)s AND finished_at IS NULL AND started_at BETWEEN now() - interval '1 s' AND now()
    ) + (
        SELECT count(*) FROM webhooks_deliveryattempt
        WHERE endpoint_id = %(endpoint)s AND finished_at > now() - interval '1 s'
            AND started_at BETWEEN now() - interval '1 s' AND now()
    )
