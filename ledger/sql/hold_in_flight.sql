-- The commands under way with a target that the hold covers, and their tokens: leased, or with a request that nobody knows the
-- end of. Parameter: hold. Read behind the hold's barrier, while every claim of the tenant waits: so what is under way is
-- looked for first, among the ready commands of the buckets that ledger_turn names, and only of those the targets are read.
WITH under_way AS MATERIALIZED (
    SELECT c.id, c.lease_until, c.lease_token
    FROM retention_legalhold h
    JOIN ledger_turn own ON own.tenant_id = h.tenant_id
    JOIN ledger_cleanupcommand c ON c.state = 'ready' AND c.bucket_id = own.bucket_id AND c.tenant_id = own.tenant_id
    WHERE h.id = %(hold)s AND h.released_at IS NULL AND (
        c.lease_until > statement_timestamp() OR c.inspect_due IS NOT NULL OR c.lease_until IS NOT NULL AND EXISTS (
            SELECT FROM ledger_request r WHERE r.command_id = c.id AND r.token = c.lease_token
        )
    )
)
SELECT
    c.id,
    -- Where nobody has it, the request in doubt is the last one.
    CASE WHEN c.lease_until IS NULL THEN
        coalesce((SELECT max(r.token) FROM ledger_request r WHERE r.command_id = c.id), c.lease_token)
    ELSE c.lease_token END AS token
FROM under_way c
JOIN retention_legalhold h ON h.id = %(hold)s
WHERE EXISTS (
    SELECT FROM ledger_commandtarget t
    JOIN retention_objectversion v ON v.id = t.object_version_id
    JOIN retention_holdprefix p ON p.hold_id = h.id AND p.bucket_id = t.bucket_id AND t.key ^@ p.prefix
    WHERE t.command_id = c.id
        AND (v.retention_class = ANY (h.retention_classes) OR '*' = ANY (h.retention_classes))
        AND (h.stored_from IS NULL OR t.stored_at >= h.stored_from)
        AND (h.stored_to IS NULL OR t.stored_at < h.stored_to)
)
ORDER BY c.id
