-- What a bulk job is about never changes, an ended one stays ended, and an item gets its outcome once.
CREATE FUNCTION guard_bulk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'row % of % cannot be changed so', OLD.id, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', HINT = 'Jobs and items keep what they are about and how they ended.';
END
$$;

CREATE TRIGGER guard_job BEFORE UPDATE ON base_bulkjob FOR EACH ROW
    WHEN (
        OLD.finished_at IS NOT NULL OR OLD.done > NEW.done
        -- The set is counted once, in the transaction that froze it.
        OR (OLD.total <> 0 AND OLD.total <> NEW.total)
        OR (OLD.id, OLD.kind, OLD.subject_type, OLD.selection, OLD.reason, OLD.requested_by_id, OLD.requested_at, OLD.token,
            OLD.details, OLD.lanes, OLD.tenants)
            IS DISTINCT FROM (
                NEW.id, NEW.kind, NEW.subject_type, NEW.selection, NEW.reason, NEW.requested_by_id, NEW.requested_at, NEW.token,
                NEW.details, NEW.lanes, NEW.tenants)
    )
    EXECUTE FUNCTION guard_bulk();
ALTER TABLE base_bulkjob ENABLE ALWAYS TRIGGER guard_job;

CREATE TRIGGER guard_item BEFORE UPDATE ON base_bulkitem FOR EACH ROW
    WHEN (
        OLD.outcome <> '' OR NEW.outcome = ''
        OR (OLD.id, OLD.job_id, OLD.ordinal, OLD.subject_id)
            IS DISTINCT FROM (NEW.id, NEW.job_id, NEW.ordinal, NEW.subject_id)
    )
    EXECUTE FUNCTION guard_bulk();
ALTER TABLE base_bulkitem ENABLE ALWAYS TRIGGER guard_item;

CREATE TRIGGER keep_jobs BEFORE DELETE OR TRUNCATE ON base_bulkjob
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE base_bulkjob ENABLE ALWAYS TRIGGER keep_jobs;

CREATE TRIGGER keep_items BEFORE DELETE OR TRUNCATE ON base_bulkitem
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE base_bulkitem ENABLE ALWAYS TRIGGER keep_items;
