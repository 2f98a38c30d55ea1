-- A hold keeps what it was placed with; it ends once, by an approved release, and is never removed or re-opened.
CREATE FUNCTION guard_hold() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.released_at IS NOT NULL THEN
            RAISE EXCEPTION 'a hold is in force when it is placed' USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF OLD.released_at IS NOT NULL OR to_jsonb(OLD) - 'released_at' <> to_jsonb(NEW) - 'released_at' THEN
        RAISE EXCEPTION 'hold % cannot be changed: it can only be released, once', OLD.id
            USING ERRCODE = 'restrict_violation', HINT = 'Place a new hold.';
    END IF;
    IF NEW.released_at IS NOT NULL AND NOT EXISTS (
        SELECT FROM retention_holdrelease r
        WHERE r.hold_id = OLD.id AND r.decision = 'approved' AND r.decided_at = NEW.released_at
    ) THEN
        RAISE EXCEPTION 'hold % cannot be released: nobody approved it', OLD.id
            USING ERRCODE = 'restrict_violation', HINT = 'One person requests the release, another approves it.';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER guard_hold BEFORE INSERT OR UPDATE ON retention_legalhold FOR EACH ROW EXECUTE FUNCTION guard_hold();
ALTER TABLE retention_legalhold ENABLE ALWAYS TRIGGER guard_hold;

CREATE TRIGGER keep_holds BEFORE DELETE OR TRUNCATE ON retention_legalhold
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE retention_legalhold ENABLE ALWAYS TRIGGER keep_holds;

-- A release is requested while its hold is in force, decided once, and never removed.
CREATE FUNCTION guard_hold_release() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    decided text[] := '{decision,decided_by_id,decided_at,decision_reason,impact}';
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.decision <> '' THEN
            RAISE EXCEPTION 'a release is requested before it is decided' USING ERRCODE = 'restrict_violation';
        END IF;
        IF EXISTS (SELECT FROM retention_legalhold WHERE id = NEW.hold_id AND released_at IS NOT NULL) THEN
            RAISE EXCEPTION 'hold % is released already', NEW.hold_id USING ERRCODE = 'restrict_violation';
        END IF;
    ELSIF OLD.decision <> '' OR NEW.decision = '' OR to_jsonb(OLD) - decided <> to_jsonb(NEW) - decided THEN
        RAISE EXCEPTION 'release % cannot be changed: it can only be decided, once', OLD.id
            USING ERRCODE = 'restrict_violation', HINT = 'Request another release.';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER guard_hold_release BEFORE INSERT OR UPDATE ON retention_holdrelease
    FOR EACH ROW EXECUTE FUNCTION guard_hold_release();
ALTER TABLE retention_holdrelease ENABLE ALWAYS TRIGGER guard_hold_release;

CREATE TRIGGER keep_releases BEFORE DELETE OR TRUNCATE ON retention_holdrelease
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE retention_holdrelease ENABLE ALWAYS TRIGGER keep_releases;
