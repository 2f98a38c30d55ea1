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

-- A body with object keys is what it was frozen as, until it is forgotten: not before its event has been settled for a day, nor
-- while it is being sent again.
CREATE FUNCTION guard_detailed_body() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM webhooks_outboxevent e WHERE e.id = OLD.event_id AND e.settled_at < now() - interval '1 day'
    ) OR EXISTS (SELECT FROM webhooks_delivery d WHERE d.event_id = OLD.event_id AND d.state = 'pending') THEN
        RAISE EXCEPTION 'the body with object keys of event % is still owed', OLD.event_id
            USING ERRCODE = 'restrict_violation', HINT = 'It is forgotten by itself once it is old enough.';
    END IF;
    RETURN OLD;
END
$$;

CREATE TRIGGER guard_detailed_body BEFORE DELETE ON webhooks_detailedbody
    FOR EACH ROW EXECUTE FUNCTION guard_detailed_body();
ALTER TABLE webhooks_detailedbody ENABLE ALWAYS TRIGGER guard_detailed_body;

CREATE TRIGGER keep_detailed_bodies BEFORE UPDATE OR TRUNCATE ON webhooks_detailedbody
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE webhooks_detailedbody ENABLE ALWAYS TRIGGER keep_detailed_bodies;
