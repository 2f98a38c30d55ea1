-- The present object versions that lines of an erasure list name: by key, with or without a version id, or by asset.
-- Parameters: tenant; arrays line int, bucket bigint (0: by asset), name text (key or asset), version text (empty: all).
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest(%(line)s::int[], %(bucket)s::bigint[], %(name)s::text[], %(version)s::text[])
        AS u (line, bucket, name, version)
)
SELECT asked.line, v.id, v.size
FROM asked CROSS JOIN LATERAL (
    SELECT o.id, o.size FROM retention_objectversion o
    WHERE asked.bucket <> 0 AND o.bucket_id = asked.bucket AND o.key = asked.name
        AND (asked.version = '' OR o.version_id = asked.version)
        AND o.tenant_id = %(tenant)s AND o.gone_at IS NULL AND NOT o.is_delete_marker
    UNION ALL
    SELECT o.id, o.size FROM retention_objectversion o
    WHERE asked.bucket = 0 AND o.tenant_id = %(tenant)s AND o.asset = asked.name AND o.gone_at IS NULL
        AND NOT o.is_delete_marker
) v
ORDER BY asked.line, v.id
