-- What now stands between claimed commands and their deletion: one row for each target, a statement of its own after the
-- tenant's hold lock was granted. Parameters: ids bigint[], tenant, instant
-- (canonical.SQL_INSTANT: times leave as canonical JSON holds them).
WITH target AS MATERIALIZED (
    SELECT
        t.id, t.command_id, t.ordinal, t.object_version_id, t.bucket_id, t.key, t.version_id, t.incarnation, t.etag,
        t.size, t.stored_at, t.role, t.gone_at, t.evidence, c.revision_id, v.retention_class, v.listed_at,
        v.gone_at IS NULL AND v.etag = t.etag AND t.incarnation = ''
            AND v.listed_at > now() - r.evidence_max_age_hours * interval '1 h' AS listed,
        r.policy_id, r.number,
        -- What is not flagged counts as current where nothing is.
        t.role <> 'delete_marker' AND t.gone_at IS NULL AND (v.is_latest OR NOT EXISTS (
            SELECT FROM retention_objectversion l WHERE l.bucket_id = t.bucket_id AND l.key = t.key AND l.gone_at IS NULL
                AND l.is_latest
        )) AS current
    FROM ledger_commandtarget t
    JOIN ledger_cleanupcommand c ON c.id = t.command_id
    JOIN retention_policyrevision r ON r.id = c.revision_id
    JOIN retention_objectversion v ON v.id = t.object_version_id
    WHERE t.command_id = ANY (%(ids)s::bigint[]) AND c.id = ANY (%(ids)s::bigint[])
),
covered AS MATERIALIZED (
    SELECT t.id, min(h.id) AS hold_id
    FROM (
        SELECT DISTINCT length(p.prefix) AS length FROM retention_holdprefix p
        JOIN retention_legalhold h ON h.id = p.hold_id AND h.released_at IS NULL AND h.tenant_id = %(tenant)s
    ) lengths
    CROSS JOIN target t
    JOIN retention_holdprefix p ON p.bucket_id = t.bucket_id AND p.prefix = left(t.key, lengths.length)
    JOIN retention_legalhold h ON h.id = p.hold_id AND h.released_at IS NULL AND h.tenant_id = %(tenant)s
        AND (t.retention_class = ANY (h.retention_classes) OR '*' = ANY (h.retention_classes))
        AND (h.stored_from IS NULL OR t.stored_at >= h.stored_from)
        AND (h.stored_to IS NULL OR t.stored_at < h.stored_to)
    GROUP BY t.id
),
superseding AS MATERIALIZED (
    SELECT policy_id, number, retroactive, effective_from FROM retention_policyrevision
    WHERE in_force_from <= now() AND policy_id IN (SELECT policy_id FROM target)
)
SELECT
    t.command_id, t.id, t.ordinal, t.object_version_id, t.bucket_id, t.key, t.version_id, t.etag, t.size, t.role,
    to_char(t.stored_at AT TIME ZONE 'UTC', %(instant)s),
    CASE WHEN t.listed THEN to_char(t.listed_at AT TIME ZONE 'UTC', %(instant)s) END, t.gone_at, t.evidence,
    t.current,
    (SELECT hold_id FROM covered WHERE covered.id = t.id),
    EXISTS (
        SELECT FROM retention_enforcement e WHERE e.tenant_id = %(tenant)s AND e.switched_off_at IS NULL
            AND e.bucket_id = t.bucket_id AND t.key ^@ e.prefix
    ),
    EXISTS (
        SELECT FROM superseding n WHERE n.policy_id = t.policy_id AND n.number > t.number
            AND (n.retroactive OR t.stored_at >= n.effective_from)
    ),
    -- The current version waits for older ones, which would otherwise come back to life; its own command's go before it.
    t.current AND EXISTS (
        SELECT FROM retention_objectversion o WHERE o.bucket_id = t.bucket_id AND o.key = t.key AND o.gone_at IS NULL
            AND NOT o.is_delete_marker AND o.id <> t.object_version_id AND o.stored_at <= t.stored_at
            AND NOT EXISTS (
                SELECT FROM ledger_commandtarget own
                WHERE own.command_id = t.command_id AND own.object_version_id = o.id
            )
    )
FROM target t
ORDER BY t.command_id, t.ordinal
