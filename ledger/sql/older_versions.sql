-- Whether every older version that a command must wait for is on its way out, because a ready command other than this one
-- orders it; and the seconds until the last of those is due. Parameter: command. What waits for what is as in claim_check.sql.
SELECT bool_and(other.due_at IS NOT NULL), extract(epoch FROM max(other.due_at) - now())::float
FROM ledger_commandtarget t
JOIN retention_objectversion v ON v.id = t.object_version_id
JOIN retention_objectversion o ON o.bucket_id = t.bucket_id AND o.key = t.key AND o.gone_at IS NULL
    AND NOT o.is_delete_marker AND o.id <> t.object_version_id AND o.stored_at <= t.stored_at
LEFT JOIN LATERAL (
    SELECT c.due_at FROM ledger_commandtarget x JOIN ledger_cleanupcommand c ON c.id = x.command_id AND c.state = 'ready'
    WHERE x.object_version_id = o.id AND x.active AND c.id <> t.command_id LIMIT 1
) other ON true
WHERE t.command_id = %(command)s AND t.gone_at IS NULL AND t.role <> 'delete_marker' AND (v.is_latest OR NOT EXISTS (
    SELECT FROM retention_objectversion l
    WHERE l.bucket_id = t.bucket_id AND l.key = t.key AND l.gone_at IS NULL AND l.is_latest
)) AND NOT EXISTS (
    SELECT FROM ledger_commandtarget own WHERE own.command_id = t.command_id AND own.object_version_id = o.id
)
