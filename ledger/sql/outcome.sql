-- Write what became of claimed commands, and give their leases back. One array for each column.
-- A look that was owed is settled only if it is the one that we took: later evidence asks for another.
UPDATE ledger_cleanupcommand c SET
    state = u.state,
    attempts = c.attempts + u.charged::int,
    failure_class = CASE WHEN u.failure_class <> '' THEN u.failure_class ELSE c.failure_class END,
    due_at = CASE WHEN u.due_in IS NULL THEN c.due_at ELSE statement_timestamp() + u.due_in * interval '1 s' END,
    inspect_due = CASE
        WHEN u.inspect_in IS NOT NULL THEN statement_timestamp() + u.inspect_in * interval '1 s'
        WHEN c.inspect_due IS DISTINCT FROM u.seen THEN c.inspect_due
    END,
    lease_until = NULL,
    held_by = u.held_by,
    held_until = u.held_until,
    hold_id = u.hold_id,
    reason = u.reason,
    changed_at = statement_timestamp()
FROM unnest(
    %(id)s::bigint[], %(state)s::text[], %(charged)s::boolean[], %(failure_class)s::text[], %(due_in)s::float[],
    %(inspect_in)s::float[], %(seen)s::timestamptz[], %(held_by)s::text[], %(held_until)s::timestamptz[],
    %(hold_id)s::bigint[], %(reason)s::text[]
) AS u (id, state, charged, failure_class, due_in, inspect_in, seen, held_by, held_until, hold_id, reason)
WHERE c.id = u.id
