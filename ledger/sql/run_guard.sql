-- A run moves only as ledger/states.py says; what it was opened with never changes.
CREATE FUNCTION guard_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state <> NEW.state AND NOT EXISTS (
        SELECT FROM (VALUES
            ('scanning', 'needs_approval'), ('scanning', 'cooling_off'), ('scanning', 'authorised'),
            ('scanning', 'closed'), ('scanning', 'cancelled'),
            ('needs_approval', 'cooling_off'), ('needs_approval', 'authorised'), ('needs_approval', 'cancelled'),
            ('cooling_off', 'needs_approval'), ('cooling_off', 'authorised'), ('cooling_off', 'cancelled'),
            ('authorised', 'draining'), ('authorised', 'cancelled'),
            ('draining', 'paused'), ('draining', 'tripped'), ('draining', 'closed'), ('draining', 'cancelled'),
            ('paused', 'draining'), ('paused', 'cancelled'),
            ('tripped', 'draining'), ('tripped', 'cancelled')
        ) AS move(source, target) WHERE move.source = OLD.state AND move.target = NEW.state
    ) THEN
        RAISE EXCEPTION 'run % cannot go from % to %', OLD.key, OLD.state, NEW.state
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF (OLD.key, OLD.tenant_id, OLD.policy_id, OLD.mode, OLD.asked_mode, OLD.as_of, OLD.opened_at, OLD.opened_by_id) IS DISTINCT FROM
       (NEW.key, NEW.tenant_id, NEW.policy_id, NEW.mode, NEW.asked_mode, NEW.as_of, NEW.opened_at, NEW.opened_by_id)
       OR OLD.streams <> NEW.streams
       OR (OLD.sealed_at IS NOT NULL AND (OLD.sealed_at, OLD.manifest_root, OLD.item_count, OLD.target_count, OLD.bytes)
           IS DISTINCT FROM (NEW.sealed_at, NEW.manifest_root, NEW.item_count, NEW.target_count, NEW.bytes)) THEN
        RAISE EXCEPTION 'run %: what it was opened or sealed with cannot change', OLD.key
            USING ERRCODE = 'restrict_violation';
    END IF;
    -- What was approved is what runs. The number of exempted items and the root of what remains go together.
    IF OLD.state NOT IN ('scanning', 'needs_approval', 'cooling_off')
       AND (OLD.remaining_root, OLD.remaining_count, OLD.exempt_count)
           IS DISTINCT FROM (NEW.remaining_root, NEW.remaining_count, NEW.exempt_count)
       OR OLD.exempt_count <> NEW.exempt_count AND (NEW.remaining_root <> '' OR NEW.state <> 'needs_approval') THEN
        RAISE EXCEPTION 'run %: what is exempted changes before it is authorised, and is approved again', OLD.key
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER guard_run BEFORE UPDATE ON ledger_cleanuprun
    FOR EACH ROW EXECUTE FUNCTION guard_run();
ALTER TABLE ledger_cleanuprun ENABLE ALWAYS TRIGGER guard_run;

CREATE TRIGGER keep_run BEFORE DELETE OR TRUNCATE ON ledger_cleanuprun
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_cleanuprun ENABLE ALWAYS TRIGGER keep_run;
