-- An attempt is written before it is sent and finished once; it is never taken back.
CREATE FUNCTION guard_attempt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'attempt % of delivery % cannot be changed: it can only be finished, once', OLD.number, OLD.delivery_id
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER guard_attempt BEFORE UPDATE ON webhooks_deliveryattempt FOR EACH ROW
    WHEN (
        OLD.finished_at IS NOT NULL OR NEW.finished_at IS NULL
        OR (OLD.id, OLD.delivery_id, OLD.endpoint_id, OLD.number, OLD.token, OLD.is_probe, OLD.started_at, OLD.url, OLD.key_ids)
            IS DISTINCT FROM (
                NEW.id, NEW.delivery_id, NEW.endpoint_id, NEW.number, NEW.token, NEW.is_probe, NEW.started_at, NEW.url, NEW.key_ids)
    )
    EXECUTE FUNCTION guard_attempt();
ALTER TABLE webhooks_deliveryattempt ENABLE ALWAYS TRIGGER guard_attempt;

CREATE TRIGGER keep_attempts BEFORE DELETE OR TRUNCATE ON webhooks_deliveryattempt
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE webhooks_deliveryattempt ENABLE ALWAYS TRIGGER keep_attempts;

CREATE FUNCTION guard_ping() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'ping % cannot be changed: it can only be finished, once', OLD.id
        USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER guard_ping BEFORE UPDATE ON webhooks_ping FOR EACH ROW
    WHEN (
        OLD.finished_at IS NOT NULL OR NEW.finished_at IS NULL
        OR (OLD.id, OLD.endpoint_id, OLD.event_id, OLD.sent_by_id, OLD.started_at, OLD.url, OLD.key_ids)
            IS DISTINCT FROM (NEW.id, NEW.endpoint_id, NEW.event_id, NEW.sent_by_id, NEW.started_at, NEW.url, NEW.key_ids)
    )
    EXECUTE FUNCTION guard_ping();
ALTER TABLE webhooks_ping ENABLE ALWAYS TRIGGER guard_ping;

CREATE TRIGGER keep_pings BEFORE DELETE OR TRUNCATE ON webhooks_ping
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE webhooks_ping ENABLE ALWAYS TRIGGER keep_pings;
