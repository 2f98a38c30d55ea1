-- Of these runs, those whose instant lies before a change of any policy or retention event of the tenant, or a decision
-- about an object of it. The end of a decision keeps nothing. Parameters: runs bigint[], tenant.
-- A suspension or a publication bears a time before its commit: a run of the next moments may not have seen it. Decisions and
-- events need no such margin, as their time is taken under the lock that a freeze holds as well.
SELECT r.id FROM ledger_cleanuprun r
WHERE r.id = ANY (%(runs)s::bigint[]) AND (
    EXISTS (
        SELECT FROM retention_retentionpolicy p WHERE p.tenant_id = %(tenant)s AND p.suspended_at > r.as_of - interval '10 s'
    ) OR EXISTS (
        SELECT FROM retention_policyrevision n
        WHERE n.tenant_id = %(tenant)s AND n.in_force_from <= now() AND n.in_force_from > r.as_of - interval '10 s'
    ) OR EXISTS (
        SELECT FROM retention_disposition d WHERE d.tenant_id = %(tenant)s AND d.at > r.as_of
    ) OR EXISTS (
        SELECT FROM retention_retentionevent e WHERE e.tenant_id = %(tenant)s AND e.posted_at > r.as_of
    ) OR EXISTS (
        SELECT FROM retention_retentionevent e WHERE e.tenant_id = %(tenant)s AND e.withdrawn_at > r.as_of
    )
)
