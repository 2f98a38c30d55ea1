-- After its decision is recorded (the guard looks for it, so this is a later statement), a parked command begins its next
-- cycle under the run that found it again. Parameters: run; arrays id, item, priority, anew (0 or 1). Returns the quarantine
-- entries that this has resolved, or null.
WITH asked AS (
    SELECT * FROM unnest(%(id)s::bigint[], %(item)s::bigint[], %(priority)s::bigint[], %(anew)s::bigint[])
        AS u (id, item, priority, anew)
),
active AS (
    UPDATE ledger_commandtarget t SET active = true FROM asked
    WHERE t.command_id = asked.id AND NOT t.active AND t.gone_at IS NULL
),
resolved AS (
    UPDATE ledger_deadletter d SET resolved_at = now(), resolution = 'adopted'
    FROM asked WHERE d.command_id = asked.id AND d.resolved_at IS NULL
    RETURNING d.id
),
ready AS (
    UPDATE ledger_cleanupcommand c SET
        run_id = %(run)s, item_id = asked.item, priority = asked.priority, state = 'ready', cycle = c.cycle + asked.anew,
        attempts = c.attempts * (1 - asked.anew), lease_losses = c.lease_losses * (1 - asked.anew),
        due_at = CASE WHEN asked.anew = 1 THEN now() ELSE c.due_at END,
        held_by = '', held_until = NULL, hold_id = NULL, reason = '', changed_at = now()
    FROM asked WHERE c.id = asked.id
)
SELECT array_agg(id) FROM resolved
