-- The newest open runs and how far they are. Parameters: codes text[] (of tenants; empty: all), open text[] (states), shown int.
-- Returns id, key, state, mode, policy, when it opened, items that remain (NULL before it is sealed), settled, in quarantine, and
-- how many runs are open. What a run left out, because another has it, is settled too.
WITH open_run AS MATERIALIZED (
    SELECT r.*, count(*) OVER () AS number
    FROM ledger_cleanuprun r JOIN retention_tenant t ON t.id = r.tenant_id
    WHERE r.state = ANY (%(open)s) AND (%(codes)s::text[] = '{}' OR t.code = ANY (%(codes)s::text[]))
    ORDER BY r.id DESC LIMIT %(shown)s
)
SELECT
    r.id, r.key, r.state, r.mode, p.code, r.opened_at, r.remaining_count, tally.settled + skipped.n, tally.dead, r.number
FROM open_run r
JOIN retention_retentionpolicy p ON p.id = r.policy_id
CROSS JOIN LATERAL (
    SELECT
        coalesce(sum(commands), 0)::bigint AS settled,
        coalesce(sum(commands) FILTER (WHERE outcome = 'dead'), 0)::bigint AS dead
    FROM ledger_runtally WHERE run_id = r.id
) tally
CROSS JOIN LATERAL (SELECT count(*) AS n FROM ledger_skippeditem WHERE run_id = r.id) skipped
ORDER BY r.id DESC
