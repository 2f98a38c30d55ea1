-- A derivative stands alone exactly when no present version under its original's key is known.
WITH chunk AS MATERIALIZED (
    SELECT id FROM retention_objectversion WHERE id = ANY(%(ids)s) ORDER BY id FOR NO KEY UPDATE
)
UPDATE retention_objectversion d
SET standalone = NOT EXISTS (
    SELECT FROM retention_objectversion o
    WHERE o.bucket_id = d.original_bucket_id AND o.key = d.original_key
        AND o.gone_at IS NULL AND NOT o.is_delete_marker
)
FROM chunk
WHERE d.id = chunk.id AND d.role = 'derivative' AND NOT d.is_delete_marker AND d.gone_at IS NULL
    AND d.standalone = EXISTS (
        SELECT FROM retention_objectversion o
        WHERE o.bucket_id = d.original_bucket_id AND o.key = d.original_key
            AND o.gone_at IS NULL AND NOT o.is_delete_marker
    )
