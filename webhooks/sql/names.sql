-- The class of what each endpoint answered last, of those that were sent to within the last minute.
SELECT e.id, a.failure_class FROM webhooks_endpoint e
CROSS JOIN LATERAL (
    SELECT failure_class FROM webhooks_deliveryattempt
    WHERE endpoint_id = e.id AND finished_at > now() - interval '1 minute'
    ORDER BY finished_at DESC LIMIT 1
) a
