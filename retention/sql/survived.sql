-- Destroyed by us, yet shown by a listing that began later.
UPDATE retention_objectversion v
SET survived_at = %(observed_at)s
FROM catalogue_page p
WHERE v.bucket_id = %(bucket)s AND v.key = p.key AND v.version_id = p.version_id AND v.incarnation = p.incarnation
    AND v.gone_reason = 'destroyed' AND v.gone_at < %(observed_at)s
    AND (v.survived_at IS NULL OR v.survived_at < %(observed_at)s)
RETURNING v.key, v.version_id
