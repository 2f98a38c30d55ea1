-- The holds in force, but for one, that cover each of these versions. Parameters: ids bigint[], tenant, without (that one).
SELECT v.id, array_agg(DISTINCT h.id)
FROM (
    SELECT DISTINCT length(p.prefix) AS length FROM retention_holdprefix p
    JOIN retention_legalhold h ON h.id = p.hold_id AND h.released_at IS NULL AND h.tenant_id = %(tenant)s
) lengths
CROSS JOIN retention_objectversion v
JOIN retention_holdprefix p ON p.bucket_id = v.bucket_id AND p.prefix = left(v.key, lengths.length)
JOIN retention_legalhold h ON h.id = p.hold_id AND h.released_at IS NULL AND h.tenant_id = v.tenant_id
    AND (v.retention_class = ANY (h.retention_classes) OR '*' = ANY (h.retention_classes))
    AND (h.stored_from IS NULL OR v.stored_at >= h.stored_from)
    AND (h.stored_to IS NULL OR v.stored_at < h.stored_to)
WHERE v.id = ANY (%(ids)s::bigint[]) AND h.tenant_id = %(tenant)s AND h.id <> %(without)s
GROUP BY v.id
