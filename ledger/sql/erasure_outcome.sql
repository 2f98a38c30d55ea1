-- What has become of the object versions that an erasure request names, counted. Parameters: request, run (its run).
SELECT
    CASE
        WHEN v.gone_reason = 'destroyed' THEN 'destroyed'
        WHEN v.gone_at IS NOT NULL THEN 'gone outside of us'
        WHEN own.state = 'ready' THEN 'on the way'
        WHEN own.state IS NOT NULL THEN own.state
        ELSE 'left out'
    END,
    count(*)
FROM ledger_erasuretarget t
JOIN retention_objectversion v ON v.id = t.object_version_id
LEFT JOIN LATERAL (
    SELECT c.state FROM ledger_commandtarget named JOIN ledger_cleanupcommand c ON c.id = named.command_id
    WHERE named.object_version_id = t.object_version_id AND c.run_id = %(run)s LIMIT 1
) own ON true
WHERE t.request_id = %(request)s
GROUP BY 1 ORDER BY 1
