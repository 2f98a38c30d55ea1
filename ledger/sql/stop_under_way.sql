-- The ready commands of a tenant that a stop switch concerns and that may be under way: leased, or with a request that nobody
-- knows the end of. Parameters: tenant, bucket, policy (null: not asked). Read behind the switch's barrier, while every claim
-- of the tenant waits: so what is under way is looked for first, among the ready commands of the buckets that ledger_turn
-- names, and only of those the targets are read.
WITH under_way AS MATERIALIZED (
    SELECT c.id, c.policy_id, c.lease_until, c.lease_token
    FROM ledger_turn own
    JOIN ledger_cleanupcommand c ON c.state = 'ready' AND c.bucket_id = own.bucket_id AND c.tenant_id = own.tenant_id
    WHERE own.tenant_id = %(tenant)s AND (
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
WHERE (%(policy)s::bigint IS NULL OR c.policy_id = %(policy)s::bigint)
    AND (%(bucket)s::bigint IS NULL OR EXISTS (
        SELECT FROM ledger_commandtarget t WHERE t.command_id = c.id AND t.bucket_id = %(bucket)s::bigint
    ))
ORDER BY c.id
