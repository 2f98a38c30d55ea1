-- Commands whose targets are all confirmed gone: their attempts, their targets, their states, and the catalogue's rows.
-- Parameters: arrays id, token, cycle, outcome, event_id; arrays target, gone_at (targets seen gone in this claim); versions
-- bigint[]; claimed_at, worker, now.
WITH tried AS (
    INSERT INTO ledger_attempt (
        command_id, token, late, cycle, outcome, charged, failure_class, detail, claimed_at, settled_at, worker
    )
    SELECT u.id, u.token, false, u.cycle, u.outcome, false, '', '', %(claimed_at)s, %(now)s, %(worker)s
    FROM unnest(%(id)s::bigint[], %(token)s::bigint[], %(cycle)s::smallint[], %(outcome)s::text[])
        AS u (id, token, cycle, outcome)
    ON CONFLICT DO NOTHING -- of a look at parked commands: it has no claim of its own
),
gone AS (
    UPDATE ledger_commandtarget t SET gone_at = u.at
    FROM unnest(%(target)s::bigint[], %(gone_at)s::timestamptz[]) AS u (id, at)
    WHERE t.id = u.id AND t.id = ANY (%(target)s::bigint[]) -- said twice, so that the index is probed and never walked
),
destroyed AS (
    UPDATE retention_objectversion v
    SET gone_at = %(now)s, gone_reason = 'destroyed', parked_by_id = NULL
    WHERE v.id = ANY (%(versions)s::bigint[]) AND v.gone_reason <> 'destroyed'
)
UPDATE ledger_cleanupcommand c SET
    state = 'deleted', outcome = u.outcome, event_id = u.event_id, lease_until = NULL, inspect_due = NULL, held_by = '',
    held_until = NULL, hold_id = NULL, reason = '', changed_at = %(now)s
FROM unnest(%(id)s::bigint[], %(outcome)s::text[], %(event_id)s::text[]) AS u (id, outcome, event_id)
WHERE c.id = u.id AND c.id = ANY (%(id)s::bigint[])
