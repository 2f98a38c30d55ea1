-- What is open in quarantine by cause, each counted up to a cap: the index quarantine_causes is read from one cause to the
-- next, so that the cost follows the number of causes. Bounds instead of equalities, which would make the order by id alone:
-- then PostgreSQL may walk through everything that is open for each cause. Parameters: tenants (bigint[], or null for all), cap,
-- most (causes of these tenants: others' are passed by, each in one step, and take no place), late (seconds).
WITH RECURSIVE cause AS (
    (
        SELECT failure_class, storage_code, bucket_id, tenant_id,
            coalesce(tenant_id = ANY (%(tenants)s::bigint[]), true)::int AS place
        FROM ledger_deadletter
        WHERE resolved_at IS NULL ORDER BY failure_class, storage_code, bucket_id, tenant_id LIMIT 1
    )
    UNION ALL
    SELECT following.*, cause.place + coalesce(following.tenant_id = ANY (%(tenants)s::bigint[]), true)::int
    FROM cause CROSS JOIN LATERAL (
        SELECT d.failure_class, d.storage_code, d.bucket_id, d.tenant_id FROM ledger_deadletter d
        WHERE d.resolved_at IS NULL AND (d.failure_class, d.storage_code, d.bucket_id, d.tenant_id)
            > (cause.failure_class, cause.storage_code, cause.bucket_id, cause.tenant_id)
        ORDER BY d.failure_class, d.storage_code, d.bucket_id, d.tenant_id LIMIT 1
    ) following
    WHERE cause.place < %(most)s
)
SELECT cause.failure_class, cause.storage_code, cause.bucket_id, cause.tenant_id, counted.number, counted.late,
    counted.oldest
FROM cause CROSS JOIN LATERAL (
    SELECT
        count(*) AS number, min(entered_at) AS oldest,
        count(*) FILTER (WHERE entered_at < now() - %(late)s * interval '1 s') AS late
    FROM (
        SELECT d.entered_at FROM ledger_deadletter d
        WHERE d.resolved_at IS NULL
            AND (d.failure_class, d.storage_code, d.bucket_id, d.tenant_id)
                >= (cause.failure_class, cause.storage_code, cause.bucket_id, cause.tenant_id)
            AND (d.failure_class, d.storage_code, d.bucket_id, d.tenant_id)
                <= (cause.failure_class, cause.storage_code, cause.bucket_id, cause.tenant_id)
        ORDER BY d.failure_class, d.storage_code, d.bucket_id, d.tenant_id, d.id LIMIT %(cap)s
    ) first
) counted
WHERE %(tenants)s::bigint[] IS NULL OR cause.tenant_id = ANY (%(tenants)s::bigint[])
ORDER BY cause.place
