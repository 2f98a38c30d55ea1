-- A disposition keeps what was decided; an exemption or extension ends once, and nothing of it is ever removed.
CREATE FUNCTION guard_disposition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.ended_at IS NOT NULL
        OR to_jsonb(OLD) - '{ended_at,ended_by_id,end_reason}'::text[]
            <> to_jsonb(NEW) - '{ended_at,ended_by_id,end_reason}'::text[]
    THEN
        RAISE EXCEPTION 'disposition % cannot be changed: it can only be ended, once', OLD.id
            USING ERRCODE = 'restrict_violation', HINT = 'Decide anew.';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER guard_disposition BEFORE UPDATE ON retention_disposition
    FOR EACH ROW EXECUTE FUNCTION guard_disposition();
ALTER TABLE retention_disposition ENABLE ALWAYS TRIGGER guard_disposition;

CREATE TRIGGER keep_dispositions BEFORE DELETE OR TRUNCATE ON retention_disposition
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE retention_disposition ENABLE ALWAYS TRIGGER keep_dispositions;
