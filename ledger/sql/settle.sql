-- Commands whose targets are all confirmed gone, and the catalogue's rows of those targets. Parameters: arrays id, outcome,
-- event_id, charged; versions bigint[]; now.
WITH destroyed AS (
    UPDATE retention_objectversion v
    SET gone_at = %(now)s, gone_reason = 'destroyed', parked_by_id = NULL
    WHERE v.id = ANY (%(versions)s::bigint[]) AND v.gone_reason <> 'destroyed'
)
UPDATE ledger_cleanupcommand c SET
    state = 'deleted', outcome = u.outcome, event_id = u.event_id, attempts = c.attempts + u.charged::int,
    lease_until = NULL, inspect_due = NULL, held_by = '', held_until = NULL, hold_id = NULL, reason = '',
    changed_at = %(now)s
FROM unnest(%(id)s::bigint[], %(outcome)s::text[], %(event_id)s::text[], %(charged)s::boolean[])
    AS u (id, outcome, event_id, charged)
WHERE c.id = u.id AND c.id = ANY (%(id)s::bigint[])
