-- An event is what it was emitted as; it is settled once, and stays.
CREATE FUNCTION guard_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.settled_at IS NOT NULL OR NEW.settled_at IS NULL
       OR to_jsonb(OLD) - 'settled_at' <> to_jsonb(NEW) - 'settled_at' THEN
        RAISE EXCEPTION 'event % cannot be changed: it can only be settled, once', OLD.event_id
            USING ERRCODE = 'restrict_violation', HINT = 'Emit a new event.';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER guard_event BEFORE UPDATE ON webhooks_outboxevent FOR EACH ROW EXECUTE FUNCTION guard_event();
ALTER TABLE webhooks_outboxevent ENABLE ALWAYS TRIGGER guard_event;

CREATE TRIGGER keep_events BEFORE DELETE OR TRUNCATE ON webhooks_outboxevent
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE webhooks_outboxevent ENABLE ALWAYS TRIGGER keep_events;
