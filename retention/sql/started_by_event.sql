-- Present versions of one place whose clock an event starts: their number, their bytes, and the first few, no more of them
-- than asked for. Parameters: tenant, bucket, prefix, prefix_end (NULL: none), classes text[] (of the event), rules jsonb
-- (governing.as_json: those that wait for it), up_to, samples.
WITH rule AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(rules)s::jsonb) AS r (
        bucket_ids bigint[], prefixes text[], retention_classes text[], stored_from timestamptz, stored_to timestamptz
    )
),
started AS MATERIALIZED (
    SELECT v.id, v.size FROM retention_objectversion v
    WHERE v.tenant_id = %(tenant)s AND v.bucket_id = %(bucket)s AND v.gone_at IS NULL AND v.standalone
        AND NOT v.is_delete_marker
        AND (%(prefix)s = '' OR v.key >= %(prefix)s) AND (%(prefix_end)s::text IS NULL OR v.key < %(prefix_end)s::text)
        AND ('*' = ANY (%(classes)s) OR v.retention_class = ANY (%(classes)s))
        AND EXISTS (
            SELECT FROM rule r
            WHERE v.bucket_id = ANY (r.bucket_ids) AND v.key ^@ ANY (r.prefixes)
                AND ('*' = ANY (r.retention_classes) OR v.retention_class = ANY (r.retention_classes))
                AND (r.stored_from IS NULL OR v.stored_at >= r.stored_from)
                AND (r.stored_to IS NULL OR v.stored_at < r.stored_to)
        )
    LIMIT %(up_to)s
)
SELECT count(*), coalesce(sum(size), 0)::bigint, ARRAY(SELECT id FROM started LIMIT %(samples)s) FROM started
