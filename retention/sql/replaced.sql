-- A null version is replaced in place: of its incarnations, only the one observed last can still be there.
UPDATE retention_objectversion v
SET gone_at = last.observed_at, gone_reason = 'vanished', parked_by_id = NULL
FROM (
    SELECT DISTINCT ON (o.key) o.id, o.key, o.observed_at
    FROM catalogue_page p
    JOIN retention_objectversion o ON o.bucket_id = %(bucket)s AND o.key = p.key AND o.version_id = 'null'
    WHERE p.version_id = 'null'
    ORDER BY o.key, o.observed_at DESC, o.stored_at DESC, o.id DESC
) last
WHERE v.bucket_id = %(bucket)s AND v.key = last.key AND v.version_id = 'null' AND v.id <> last.id
    AND v.gone_at IS NULL
