-- What was taken out, by whom and when never changes, nor how it ended; of an ended export only its files go, once.
CREATE FUNCTION guard_export() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'export % cannot be changed so', OLD.id
        USING ERRCODE = 'restrict_violation', HINT = 'An export keeps what it holds, who asked for it and how it ended.';
END
$$;

CREATE TRIGGER guard_export BEFORE UPDATE ON ledger_receiptexport FOR EACH ROW
    WHEN (
        OLD.removed_at IS NOT NULL OR OLD.rows > NEW.rows OR OLD.bytes > NEW.bytes
        OR (OLD.id, OLD.requested_by_id, OLD.requested_at, OLD.token, OLD.form, OLD.way, OLD.selection, OLD.tenants, OLD.upto,
            OLD.expected)
            IS DISTINCT FROM (
                NEW.id, NEW.requested_by_id, NEW.requested_at, NEW.token, NEW.form, NEW.way, NEW.selection, NEW.tenants,
                NEW.upto, NEW.expected)
        OR OLD.state <> 'running' AND (
            OLD.state, OLD.trouble, OLD.rows, OLD.bytes, OLD.digest, OLD.worked_at, OLD.finished_at
        ) IS DISTINCT FROM (NEW.state, NEW.trouble, NEW.rows, NEW.bytes, NEW.digest, NEW.worked_at, NEW.finished_at)
    )
    EXECUTE FUNCTION guard_export();
ALTER TABLE ledger_receiptexport ENABLE ALWAYS TRIGGER guard_export;

CREATE TRIGGER keep_exports BEFORE DELETE OR TRUNCATE ON ledger_receiptexport
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_receiptexport ENABLE ALWAYS TRIGGER keep_exports;
