-- Items of open enforcing runs that have no outcome yet. Parameters: codes text[] (of tenants; empty: all), open text[] (states of
-- runs). What a run left out, because another has it, is settled too.
SELECT coalesce(sum(greatest(r.remaining_count - tally.settled - skipped.n, 0)), 0)::bigint
FROM ledger_cleanuprun r
JOIN retention_tenant t ON t.id = r.tenant_id AND (%(codes)s::text[] = '{}' OR t.code = ANY (%(codes)s::text[]))
CROSS JOIN LATERAL (SELECT coalesce(sum(commands), 0)::bigint AS settled FROM ledger_runtally WHERE run_id = r.id) tally
CROSS JOIN LATERAL (SELECT count(*) AS n FROM ledger_skippeditem WHERE run_id = r.id) skipped
WHERE r.state = ANY (%(open)s) AND r.mode = 'enforce' AND r.remaining_count IS NOT NULL
