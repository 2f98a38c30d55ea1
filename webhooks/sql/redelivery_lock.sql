-- Parameters: ids bigint[]. The chosen deliveries, and of each the first round of its event and endpoint, which stands for
-- the pair: whoever makes a round holds it.
SELECT FROM webhooks_delivery d
WHERE d.id IN (
    SELECT unnest(%(ids)s::bigint[])
    UNION
    SELECT owed.id FROM webhooks_delivery c
    JOIN webhooks_delivery owed ON owed.event_id = c.event_id AND owed.endpoint_id = c.endpoint_id AND owed.round = 0
    WHERE c.id = ANY (%(ids)s::bigint[])
)
ORDER BY d.id FOR NO KEY UPDATE OF d
