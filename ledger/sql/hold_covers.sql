-- The ready commands of the hold's tenant that nobody has, with a target that the hold covers. Parameter: hold. By way of
-- ledger_turn, which names each bucket in which the tenant has commands, so that the index of the ready ones is read and
-- nothing else.
SELECT c.id
FROM retention_legalhold h
JOIN ledger_turn own ON own.tenant_id = h.tenant_id
JOIN ledger_cleanupcommand c ON c.state = 'ready' AND c.bucket_id = own.bucket_id AND c.tenant_id = own.tenant_id
WHERE h.id = %(hold)s AND h.released_at IS NULL AND c.lease_until IS NULL AND c.inspect_due IS NULL AND EXISTS (
    SELECT FROM ledger_commandtarget t
    JOIN retention_objectversion v ON v.id = t.object_version_id
    JOIN retention_holdprefix p ON p.hold_id = h.id AND p.bucket_id = t.bucket_id AND t.key ^@ p.prefix
    WHERE t.command_id = c.id
        AND (v.retention_class = ANY (h.retention_classes) OR '*' = ANY (h.retention_classes))
        AND (h.stored_from IS NULL OR t.stored_at >= h.stored_from)
        AND (h.stored_to IS NULL OR t.stored_at < h.stored_to)
)
ORDER BY c.id
