-- A stop switch keeps what it was pressed with; it is lifted once, and never removed or pressed again.
CREATE FUNCTION guard_stop() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.lifted_at IS NOT NULL OR NEW.lifted_at IS NULL
       OR to_jsonb(OLD) - '{lifted_at,lifted_by_id,lift_reason}'::text[]
           <> to_jsonb(NEW) - '{lifted_at,lifted_by_id,lift_reason}'::text[] THEN
        RAISE EXCEPTION 'stop switch % cannot be changed: it can only be lifted, once', OLD.id
            USING ERRCODE = 'restrict_violation', HINT = 'Press it again: that is a new row.';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER guard_stop BEFORE UPDATE ON retention_stopswitch FOR EACH ROW EXECUTE FUNCTION guard_stop();
ALTER TABLE retention_stopswitch ENABLE ALWAYS TRIGGER guard_stop;

-- One begins as pressed.
CREATE FUNCTION guard_new_stop() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a stop switch is pressed before it is lifted' USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER guard_new_stop BEFORE INSERT ON retention_stopswitch FOR EACH ROW
    WHEN (NEW.lifted_at IS NOT NULL) EXECUTE FUNCTION guard_new_stop();
ALTER TABLE retention_stopswitch ENABLE ALWAYS TRIGGER guard_new_stop;

CREATE TRIGGER keep_stops BEFORE DELETE OR TRUNCATE ON retention_stopswitch
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE retention_stopswitch ENABLE ALWAYS TRIGGER keep_stops;
