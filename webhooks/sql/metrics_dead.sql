-- Parameter: counted int. The newest deliveries that were given up, by the class of their last failure.
SELECT last_class, count(*) FROM (
    SELECT state, last_class FROM webhooks_delivery WHERE state IN ('dead', 'cancelled') ORDER BY -id LIMIT %(counted)s
) d
WHERE state = 'dead' GROUP BY last_class ORDER BY last_class
