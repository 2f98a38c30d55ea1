-- Of commands whose lease had run out: record the loss under the old token, and where that token had committed a request,
-- let the command be looked at, and nothing else, until the look has settled it. Parameters: ids bigint[], worker.
WITH lost AS (
    INSERT INTO ledger_attempt (
        command_id, token, late, cycle, outcome, charged, failure_class, detail, claimed_at, settled_at, worker
    )
    SELECT id, lease_token - 1, false, cycle, 'lease_lost', false, '', '', now(), now(), %(worker)s
    FROM ledger_cleanupcommand WHERE id = ANY (%(ids)s::bigint[]) ORDER BY id
    ON CONFLICT DO NOTHING
)
UPDATE ledger_cleanupcommand c SET inspect_due = coalesce(c.inspect_due, now())
WHERE c.id = ANY (%(ids)s::bigint[])
    AND EXISTS (SELECT FROM ledger_request r WHERE r.command_id = c.id AND r.token = c.lease_token - 1)
RETURNING c.id, c.inspect_due
