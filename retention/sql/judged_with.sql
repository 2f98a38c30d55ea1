-- What must be judged to know what becomes of these versions: they themselves, and the originals of the derivatives among
-- them; and the derivatives that may go with any of those. Parameter: ids bigint[].
WITH subject AS MATERIALIZED (
    SELECT unnest(%(ids)s::bigint[]) AS id
    UNION
    SELECT o.id FROM retention_objectversion d
    JOIN retention_objectversion o ON o.bucket_id = d.original_bucket_id AND o.key = d.original_key
        AND o.gone_at IS NULL AND NOT o.is_delete_marker AND o.role = 'original'
    WHERE d.id = ANY (%(ids)s::bigint[]) AND d.role = 'derivative' AND NOT d.is_delete_marker
)
SELECT
    (SELECT array_agg(id)::text FROM subject),
    (
        SELECT coalesce(array_agg(DISTINCT d.id), '{}')::text
        FROM subject
        JOIN retention_objectversion o ON o.id = subject.id
        CROSS JOIN LATERAL (
            SELECT v.id FROM retention_objectversion v
            WHERE v.original_bucket_id = o.bucket_id AND v.original_key = o.key
                AND v.role = 'derivative' AND v.gone_at IS NULL
            OFFSET 0
        ) d
    )
