-- Versions that the store no longer has: mark them, unless somebody observed or ended them in the meantime.
WITH chunk AS MATERIALIZED (
    SELECT id FROM retention_objectversion
    WHERE id = ANY(%(ids)s) AND gone_at IS NULL AND observed_at < %(asked_at)s
    ORDER BY id FOR NO KEY UPDATE
)
UPDATE retention_objectversion v
SET gone_at = %(asked_at)s, gone_reason = 'vanished', parked_by_id = NULL
FROM chunk
WHERE v.id = chunk.id
RETURNING v.id
