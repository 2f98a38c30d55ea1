-- Parameter: counted int. Of the newest deliveries that were given up or cancelled: those given up that nobody has sent again since
-- and somebody still could, by the class of their last failure.
SELECT last_class, count(*) FROM (
    SELECT state, last_class, event_id, endpoint_id, round FROM webhooks_delivery
    WHERE state IN ('dead', 'cancelled') ORDER BY -id LIMIT %(counted)s
) d
WHERE state = 'dead'
    AND NOT EXISTS (
        SELECT FROM webhooks_delivery again
        WHERE again.event_id = d.event_id AND again.endpoint_id = d.endpoint_id AND again.round > d.round
    )
    AND NOT EXISTS (SELECT FROM webhooks_endpoint e WHERE e.id = d.endpoint_id AND e.retired_at IS NOT NULL)
GROUP BY last_class ORDER BY last_class
