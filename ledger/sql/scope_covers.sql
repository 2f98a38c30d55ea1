-- How many ready commands a hold of this scope would cover, waiting and under way: as hold_covers.sql, for a hold that is not
-- placed yet. Parameters: tenant, buckets bigint[], prefixes text[], classes text[], stored_from, stored_to, limit.
SELECT count(*) FILTER (WHERE NOT under_way), count(*) FILTER (WHERE under_way)
FROM (
    SELECT
        coalesce(c.lease_until > statement_timestamp(), false) OR c.inspect_due IS NOT NULL OR c.lease_until IS NOT NULL AND EXISTS (
            SELECT FROM ledger_request r WHERE r.command_id = c.id AND r.token = c.lease_token
        ) AS under_way
    FROM ledger_turn own
    JOIN ledger_cleanupcommand c ON c.state = 'ready' AND c.bucket_id = own.bucket_id AND c.tenant_id = own.tenant_id
    WHERE own.tenant_id = %(tenant)s AND EXISTS (
        SELECT FROM ledger_commandtarget t
        JOIN retention_objectversion v ON v.id = t.object_version_id
        WHERE t.command_id = c.id AND t.bucket_id = ANY (%(buckets)s::bigint[]) AND t.key ^@ ANY (%(prefixes)s::text[])
            AND (v.retention_class = ANY (%(classes)s::text[]) OR '*' = ANY (%(classes)s::text[]))
            AND (%(stored_from)s::timestamptz IS NULL OR t.stored_at >= %(stored_from)s)
            AND (%(stored_to)s::timestamptz IS NULL OR t.stored_at < %(stored_to)s)
    )
    LIMIT %(limit)s
) covered
