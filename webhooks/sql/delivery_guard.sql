-- A delivery moves from pending to one of its ends and stays there. Tokens and attempts only rise.
CREATE FUNCTION guard_delivery() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'delivery % cannot go from % (token %) to % (token %)',
        OLD.id, OLD.state, OLD.lease_token, NEW.state, NEW.lease_token
        USING ERRCODE = 'restrict_violation',
        HINT = 'Only pending deliveries change; what they deliver, and where, never does.';
END
$$;

CREATE TRIGGER guard_delivery BEFORE UPDATE ON webhooks_delivery FOR EACH ROW
    WHEN (
        OLD.state <> 'pending'
        OR OLD.lease_token > NEW.lease_token OR OLD.attempts > NEW.attempts
        OR (OLD.id, OLD.event_id, OLD.endpoint_id, OLD.tenant, OLD.round, OLD.requested_by_id, OLD.lane_id, OLD.sequence, OLD.detailed)
            IS DISTINCT FROM (
                NEW.id, NEW.event_id, NEW.endpoint_id, NEW.tenant, NEW.round, NEW.requested_by_id, NEW.lane_id, NEW.sequence,
                NEW.detailed)
    )
    EXECUTE FUNCTION guard_delivery();
ALTER TABLE webhooks_delivery ENABLE ALWAYS TRIGGER guard_delivery;

CREATE TRIGGER keep_deliveries BEFORE DELETE OR TRUNCATE ON webhooks_delivery
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE webhooks_delivery ENABLE ALWAYS TRIGGER keep_deliveries;
