    -- Parameters: begin, end timestamptz. By attempt_answers, endpoint by endpoint. A redelivery is late on purpose: it counts
    -- as that and as an attempt. An event is emitted in the transaction that it tells of, a moment before that commits.
    SELECT m.metric, d.tenant, m.label, a.finished_at, m.took, 1
    FROM webhooks_endpoint p
    CROSS JOIN LATERAL (
        SELECT delivery_id, number, started_at, finished_at, failure_class FROM webhooks_deliveryattempt
        WHERE endpoint_id = p.id AND finished_at >= %(begin)s AND finished_at < %(end)s
        OFFSET 0
    ) a
    JOIN webhooks_delivery d ON d.id = a.delivery_id
    JOIN webhooks_outboxevent e ON e.id = d.event_id
    CROSS JOIN LATERAL (
        SELECT 'delivery_attempts', coalesce(nullif(a.failure_class, ''), 'delivered'), NULL::float8
        UNION ALL
        SELECT 'first_send', '', extract(epoch FROM a.started_at - e.emitted_at)::float8 WHERE a.number = 1 AND d.round = 0
        UNION ALL
        SELECT 'acknowledgement', '', extract(epoch FROM a.finished_at - e.emitted_at)::float8
        WHERE a.failure_class IN ('', 'delivered_duplicate') AND d.round = 0
        UNION ALL
        SELECT 'redelivery', '', NULL WHERE a.number = 1 AND d.round > 0
    ) m (metric, label, took)
