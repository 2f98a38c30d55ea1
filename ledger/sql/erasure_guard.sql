-- What was filed never changes; a request is decided once, and is never removed.
CREATE FUNCTION guard_erasure() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    decision text[] := ARRAY['approved', 'decided_by_id', 'decided_at', 'decision_reason', 'run_id'];
BEGIN
    IF OLD.approved IS NOT NULL OR to_jsonb(OLD) - decision <> to_jsonb(NEW) - decision THEN
        RAISE EXCEPTION 'erasure request % cannot be changed: it can only be decided, once', OLD.id
            USING ERRCODE = 'restrict_violation', HINT = 'File a new request.';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER guard_erasure BEFORE UPDATE ON ledger_erasurerequest FOR EACH ROW EXECUTE FUNCTION guard_erasure();
ALTER TABLE ledger_erasurerequest ENABLE ALWAYS TRIGGER guard_erasure;

CREATE TRIGGER keep_erasures BEFORE DELETE OR TRUNCATE ON ledger_erasurerequest
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_erasurerequest ENABLE ALWAYS TRIGGER keep_erasures;
