-- The classes of what is present of some tenants in some buckets, found by skipping along the index scan_by_stored_at.
-- Parameters: tenants bigint[] and buckets bigint[] (pairs), most (classes of one pair).
WITH RECURSIVE step AS (
    SELECT pair.tenant_id, pair.bucket_id, 1 AS place, (
        SELECT v.retention_class FROM retention_objectversion v
        WHERE gone_at IS NULL AND standalone AND parked_by_id IS NULL AND NOT is_delete_marker
            AND v.tenant_id = pair.tenant_id AND v.bucket_id = pair.bucket_id
        ORDER BY v.retention_class LIMIT 1
    ) AS retention_class
    FROM unnest(%(tenants)s::bigint[], %(buckets)s::bigint[]) AS pair (tenant_id, bucket_id)
    UNION ALL
    SELECT step.tenant_id, step.bucket_id, step.place + 1, (
        SELECT v.retention_class FROM retention_objectversion v
        WHERE gone_at IS NULL AND standalone AND parked_by_id IS NULL AND NOT is_delete_marker
            AND v.tenant_id = step.tenant_id AND v.bucket_id = step.bucket_id
            AND v.retention_class > step.retention_class
        ORDER BY v.retention_class LIMIT 1
    )
    FROM step WHERE step.retention_class IS NOT NULL AND step.place < %(most)s
)
SELECT tenant_id, bucket_id, retention_class FROM step WHERE retention_class IS NOT NULL
