-- Lock what the page is about to change, in the order in which everybody locks object versions. All incarnations of a
-- null version are locked, since a new one ends the others.
SELECT v.id
FROM catalogue_page p
JOIN retention_objectversion v ON v.bucket_id = %(bucket)s AND v.key = p.key AND v.version_id = p.version_id
ORDER BY v.id
FOR NO KEY UPDATE OF v
