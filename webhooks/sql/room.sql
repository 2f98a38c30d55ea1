-- Parameters: endpoint bigint, lease (seconds), catching_up boolean. What the endpoint has in flight; while it catches up, how many
-- attempts began within a second; and the ids and sealed keys of the secrets that sign now, the newest first.
SELECT
    (
        SELECT count(*) FROM webhooks_deliveryattempt
        WHERE endpoint_id = %(endpoint)s AND finished_at IS NULL AND started_at > now() - %(lease)s * interval '1 s'
    ),
    CASE WHEN %(catching_up)s THEN (
        SELECT count(*) FROM webhooks_deliveryattempt
        WHERE endpoint_id = %(endpoint)s AND finished_at IS NULL AND started_at BETWEEN now() - interval '1 s' AND now()
    ) + (
        SELECT count(*) FROM webhooks_deliveryattempt
        WHERE endpoint_id = %(endpoint)s AND finished_at > now() - interval '1 s'
            AND started_at BETWEEN now() - interval '1 s' AND now()
    ) END,
    coalesce(secret.ids, '{}'), coalesce(secret.sealed, '{}')
FROM (
    SELECT array_agg(id ORDER BY id DESC) AS ids, array_agg(key_encrypted ORDER BY id DESC) AS sealed
    FROM webhooks_endpointsecret
    WHERE endpoint_id = %(endpoint)s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
) secret
