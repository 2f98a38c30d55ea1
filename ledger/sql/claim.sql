-- Claim due commands of one tenant in one bucket. Parameters: bucket, tenant, n, lease (seconds), order smallint[] (the
-- priorities, most wanted first), paused bigint[] (runs), suspended bigint[] (policies), shut bigint[] (revisions outside of
-- their window), stopped boolean (all of it), suspects boolean, suspect_after.
-- now() bounds the index, which clock_timestamp() as a volatile function would not; the state is a literal, because a
-- generic plan would not take the partial index for a parameter.
WITH picked AS MATERIALIZED (
    SELECT c.id, c.taken_over
    FROM unnest(%(order)s::smallint[]) AS wanted(priority)
    CROSS JOIN LATERAL (
        SELECT id, lease_until IS NOT NULL AS taken_over FROM ledger_cleanupcommand
        WHERE state = 'ready' AND bucket_id = %(bucket)s AND tenant_id = %(tenant)s AND priority = wanted.priority
            AND due_at <= now() AND (lease_until IS NULL OR lease_until < now())
            AND (NOT %(stopped)s AND run_id <> ALL (%(paused)s::bigint[]) AND policy_id <> ALL (%(suspended)s::bigint[])
                AND revision_id <> ALL (%(shut)s::bigint[])
                OR inspect_due IS NOT NULL OR lease_until IS NOT NULL) -- to be looked at, or given back
            AND (lease_losses >= %(suspect_after)s) = %(suspects)s
        ORDER BY due_at, id LIMIT %(n)s
        FOR NO KEY UPDATE SKIP LOCKED
    ) c
    LIMIT %(n)s
)
UPDATE ledger_cleanupcommand c
SET lease_token = c.lease_token + 1, lease_until = now() + %(lease)s * interval '1 s', claims = c.claims + 1,
    lease_losses = c.lease_losses + (c.lease_until IS NOT NULL)::int
WHERE c.id = ANY (ARRAY(SELECT id FROM picked)) -- and no join: the planner would read the whole table, or pair each with each
RETURNING c.id, c.key, c.lease_token, c.cycle, c.attempts, c.lease_losses, c.inspect_due,
    c.id = ANY (ARRAY(SELECT id FROM picked WHERE taken_over)), c.run_id, c.item_id, c.policy_id, c.revision_id, c.asset,
    c.claims
