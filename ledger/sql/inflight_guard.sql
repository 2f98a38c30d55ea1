-- A report is written once, marked once and acknowledged once, after all has ended; what it tells never changes.
CREATE FUNCTION guard_hold_report() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (OLD.hold_id, OLD.reported_at, OLD.in_flight) IS DISTINCT FROM (NEW.hold_id, NEW.reported_at, NEW.in_flight)
        OR OLD.marked_at IS NOT NULL AND OLD.marked_at IS DISTINCT FROM NEW.marked_at
        OR OLD.acknowledged_at IS NOT NULL AND OLD.acknowledged_at IS DISTINCT FROM NEW.acknowledged_at
    THEN
        RAISE EXCEPTION 'the report of hold % cannot be changed: it can be marked once and acknowledged once', OLD.hold_id
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF NEW.acknowledged_at IS NOT NULL AND EXISTS (
        SELECT FROM ledger_inflight WHERE report_id = NEW.hold_id AND ended_at IS NULL
    ) THEN
        RAISE EXCEPTION 'the report of hold % has not ended yet', OLD.hold_id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER guard_hold_report BEFORE UPDATE ON ledger_holdreport FOR EACH ROW EXECUTE FUNCTION guard_hold_report();
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
