-- After keep_known.sql: what a legal hold in force covers stays in its scope. Whoever corrects a key rule, or imports, gives
-- an object no other tenant or class that would take it out of a hold; the next listing after the release does.
UPDATE catalogue_page p SET tenant_id = k.tenant_id, retention_class = k.retention_class
FROM (
    SELECT v.key, v.version_id, v.incarnation, v.tenant_id, v.retention_class
    FROM catalogue_page q
    JOIN retention_objectversion v ON v.bucket_id = %(bucket)s AND v.key = q.key
        AND v.version_id = q.version_id AND v.incarnation = q.incarnation
    WHERE (v.tenant_id, v.retention_class) IS DISTINCT FROM (q.tenant_id, q.retention_class)
        AND EXISTS (
            SELECT FROM (SELECT DISTINCT length(prefix) AS length FROM retention_holdprefix) lengths
            JOIN retention_holdprefix s ON s.bucket_id = v.bucket_id AND s.prefix = left(v.key, lengths.length)
            JOIN retention_legalhold h ON h.id = s.hold_id AND h.released_at IS NULL AND h.tenant_id = v.tenant_id
                AND (v.retention_class = ANY (h.retention_classes) OR '*' = ANY (h.retention_classes))
                AND (h.stored_from IS NULL OR v.stored_at >= h.stored_from)
                AND (h.stored_to IS NULL OR v.stored_at < h.stored_to)
                AND (q.tenant_id IS DISTINCT FROM h.tenant_id
                    OR NOT (q.retention_class = ANY (h.retention_classes) OR '*' = ANY (h.retention_classes)))
        )
) k
WHERE p.key = k.key AND p.version_id = k.version_id AND p.incarnation = k.incarnation
