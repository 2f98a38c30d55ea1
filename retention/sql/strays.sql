-- Derivatives whose original is there, but which go with no present version of it for sure: nothing takes them along.
-- The rule of coupling is that of sql/judge.sql.
SELECT d.key, d.version_id, d.stored_at, d.original_bucket_id, d.original_key, d.original_version_id
FROM retention_objectversion d
WHERE d.bucket_id = %(bucket)s AND d.role = 'derivative' AND d.gone_at IS NULL AND NOT d.is_delete_marker
    AND EXISTS (
        SELECT FROM retention_objectversion o
        WHERE o.bucket_id = d.original_bucket_id AND o.key = d.original_key
            AND o.gone_at IS NULL AND NOT o.is_delete_marker
    )
    AND NOT EXISTS (
        SELECT FROM retention_objectversion s
        WHERE s.bucket_id = d.original_bucket_id AND s.key = d.original_key
            AND s.role = 'original' AND s.gone_at IS NULL AND NOT s.is_delete_marker
            AND CASE
                WHEN d.original_version_id <> '' THEN d.original_version_id = s.version_id
                ELSE s.stored_at <= d.stored_at
                    AND NOT EXISTS (
                        SELECT FROM retention_objectversion v
                        WHERE v.bucket_id = s.bucket_id AND v.key = s.key AND v.id <> s.id
                            AND (v.stored_at BETWEEN s.stored_at AND d.stored_at
                                OR (d.stored_at = s.stored_at AND v.stored_at < s.stored_at))
                    )
            END
    )
ORDER BY d.key, d.version_id
