-- A request keeps what was asked for and is decided once; enforcement keeps its people. Neither is ever removed.
CREATE FUNCTION guard_enforcement_request() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    decided CONSTANT text[] := ARRAY['decision', 'decided_by_id', 'decided_at', 'decision_reason'];
BEGIN
    IF OLD.decision <> '' OR to_jsonb(OLD) - decided <> to_jsonb(NEW) - decided THEN
        RAISE EXCEPTION 'enforcement request % cannot be changed: it can only be decided, once', OLD.id
            USING ERRCODE = 'restrict_violation', HINT = 'Request it again.';
    END IF;
    RETURN NEW;
END
$$;

CREATE FUNCTION guard_enforcement() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND (
        OLD.switched_off_at IS NOT NULL OR to_jsonb(OLD) - 'switched_off_at' <> to_jsonb(NEW) - 'switched_off_at'
    ) THEN
        RAISE EXCEPTION 'enforcement % cannot be changed: it can only be switched off, once', OLD.id
            USING ERRCODE = 'restrict_violation', HINT = 'Switch it off and request it anew.';
    END IF;
    IF TG_OP = 'INSERT' AND NOT EXISTS (
        SELECT FROM retention_enforcementrequest r
        WHERE r.id = NEW.request_id AND r.decision = 'approved'
            AND (r.tenant_id, r.bucket_id, r.prefix, r.requested_by_id, r.decided_by_id)
                = (NEW.tenant_id, NEW.bucket_id, NEW.prefix, NEW.requested_by_id, NEW.approved_by_id)
    ) THEN
        RAISE EXCEPTION 'enforcement needs an approved request for the same place by the same people'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER guard_enforcement_request BEFORE UPDATE ON retention_enforcementrequest
    FOR EACH ROW EXECUTE FUNCTION guard_enforcement_request();
ALTER TABLE retention_enforcementrequest ENABLE ALWAYS TRIGGER guard_enforcement_request;
CREATE TRIGGER guard_enforcement BEFORE INSERT OR UPDATE ON retention_enforcement
    FOR EACH ROW EXECUTE FUNCTION guard_enforcement();
ALTER TABLE retention_enforcement ENABLE ALWAYS TRIGGER guard_enforcement;

CREATE TRIGGER keep_enforcement_requests BEFORE DELETE OR TRUNCATE ON retention_enforcementrequest
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE retention_enforcementrequest ENABLE ALWAYS TRIGGER keep_enforcement_requests;
CREATE TRIGGER keep_enforcement BEFORE DELETE OR TRUNCATE ON retention_enforcement
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE retention_enforcement ENABLE ALWAYS TRIGGER keep_enforcement;
