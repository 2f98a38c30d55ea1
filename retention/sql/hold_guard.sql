-- A hold keeps what it was placed with; it ends once, and is never removed or re-opened.
CREATE FUNCTION guard_hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.released_at IS NOT NULL OR to_jsonb(OLD) - 'released_at' <> to_jsonb(NEW) - 'released_at' THEN
        RAISE EXCEPTION 'hold % cannot be changed: it can only be released, once', OLD.id
            USING ERRCODE = 'restrict_violation', HINT = 'Place a new hold.';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER guard_hold BEFORE UPDATE ON retention_legalhold FOR EACH ROW EXECUTE FUNCTION guard_hold();
ALTER TABLE retention_legalhold ENABLE ALWAYS TRIGGER guard_hold;

CREATE TRIGGER keep_holds BEFORE DELETE OR TRUNCATE ON retention_legalhold
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE retention_legalhold ENABLE ALWAYS TRIGGER keep_holds;
