-- A retention event keeps what was posted; it is withdrawn once, and never removed.
CREATE FUNCTION guard_retention_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.withdrawn_at IS NOT NULL
        OR to_jsonb(OLD) - '{withdrawn_at,withdrawn_by_id,withdrawn_reason}'::text[]
            <> to_jsonb(NEW) - '{withdrawn_at,withdrawn_by_id,withdrawn_reason}'::text[]
    THEN
        RAISE EXCEPTION 'retention event % cannot be changed: it can only be withdrawn, once', OLD.id
            USING ERRCODE = 'restrict_violation', HINT = 'Post a new event.';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER guard_retention_event BEFORE UPDATE ON retention_retentionevent FOR EACH ROW EXECUTE FUNCTION guard_retention_event();
ALTER TABLE retention_retentionevent ENABLE ALWAYS TRIGGER guard_retention_event;

CREATE TRIGGER keep_retention_events BEFORE DELETE OR TRUNCATE ON retention_retentionevent
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE retention_retentionevent ENABLE ALWAYS TRIGGER keep_retention_events;
