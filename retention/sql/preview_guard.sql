-- A finished preview is what somebody decided by: it never changes. It may go with a draft that is discarded.
CREATE FUNCTION guard_preview() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'preview % is finished: UPDATE is refused', OLD.id USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER guard_preview BEFORE UPDATE ON retention_impactpreview
    FOR EACH ROW WHEN (OLD.finished_at IS NOT NULL) EXECUTE FUNCTION guard_preview();
ALTER TABLE retention_impactpreview ENABLE ALWAYS TRIGGER guard_preview;
