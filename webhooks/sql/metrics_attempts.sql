-- Parameter: counted int. By class: attempts that ended within an hour, and how many of them were sent twice.
SELECT a.failure_class, count(*), count(*) FILTER (WHERE a.resent)
FROM webhooks_endpoint e
CROSS JOIN LATERAL (
    SELECT failure_class, resent FROM webhooks_deliveryattempt
    WHERE endpoint_id = e.id AND finished_at > now() - interval '1 hour'
    ORDER BY finished_at DESC LIMIT %(counted)s
) a
GROUP BY a.failure_class ORDER BY a.failure_class
