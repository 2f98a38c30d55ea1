-- Lock these versions, and the derivatives that may go with them, in id order; returns the ids of those derivatives. What is
-- judged by a later statement can then no longer change.
WITH derivative AS MATERIALIZED (
    SELECT d.id FROM retention_objectversion o
    CROSS JOIN LATERAL (
        SELECT v.id FROM retention_objectversion v
        WHERE v.original_bucket_id = o.bucket_id AND v.original_key = o.key
            AND v.role = 'derivative' AND v.gone_at IS NULL
        OFFSET 0
    ) d
    WHERE o.id = ANY(%(ids)s::bigint[])
),
locked AS MATERIALIZED (
    SELECT id FROM retention_objectversion WHERE id = ANY(%(ids)s::bigint[] || ARRAY(SELECT id FROM derivative))
    ORDER BY id FOR NO KEY UPDATE
)
SELECT (SELECT coalesce(array_agg(id), '{}')::text FROM derivative), (SELECT count(*) FROM locked)
