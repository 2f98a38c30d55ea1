-- A report is written once, and closed once; what it tells never changes.
CREATE FUNCTION guard_hold_report() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the report of hold % cannot be changed: its commands can only be marked, once', OLD.hold_id
        USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER guard_hold_report BEFORE UPDATE ON ledger_holdreport FOR EACH ROW
    WHEN (OLD.marked_at IS NOT NULL OR NEW.marked_at IS NULL OR
          (OLD.hold_id, OLD.reported_at, OLD.in_flight) IS DISTINCT FROM (NEW.hold_id, NEW.reported_at, NEW.in_flight))
    EXECUTE FUNCTION guard_hold_report();
ALTER TABLE ledger_holdreport ENABLE ALWAYS TRIGGER guard_hold_report;

CREATE FUNCTION guard_in_flight() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'what was in flight cannot be changed: it can only end, once (command %)', OLD.command_id
        USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER guard_in_flight BEFORE UPDATE ON ledger_inflight FOR EACH ROW
    WHEN (OLD.ended_at IS NOT NULL OR NEW.ended_at IS NULL OR
          (OLD.id, OLD.report_id, OLD.command_id, OLD.token, OLD.reported_at) IS DISTINCT FROM
          (NEW.id, NEW.report_id, NEW.command_id, NEW.token, NEW.reported_at))
    EXECUTE FUNCTION guard_in_flight();
ALTER TABLE ledger_inflight ENABLE ALWAYS TRIGGER guard_in_flight;

CREATE TRIGGER keep_all BEFORE DELETE OR TRUNCATE ON ledger_holdreport
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER keep_all BEFORE DELETE OR TRUNCATE ON ledger_inflight
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_holdreport ENABLE ALWAYS TRIGGER keep_all;
ALTER TABLE ledger_inflight ENABLE ALWAYS TRIGGER keep_all;
