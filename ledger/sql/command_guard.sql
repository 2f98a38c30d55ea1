-- A command goes forward only, within a cycle, as ledger/states.py says; what it names never changes.
CREATE FUNCTION guard_command() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    needs text;
BEGIN
    IF (OLD.key, OLD.tenant_id, OLD.bucket_id, OLD.policy_id, OLD.revision_id, OLD.asset, OLD.target_count, OLD.bytes,
        OLD.published_at) IS DISTINCT FROM
       (NEW.key, NEW.tenant_id, NEW.bucket_id, NEW.policy_id, NEW.revision_id, NEW.asset, NEW.target_count, NEW.bytes,
        NEW.published_at) THEN
        RAISE EXCEPTION 'command %: what it names cannot change', OLD.key USING ERRCODE = 'restrict_violation';
    END IF;
    IF OLD.state <> NEW.state THEN
        SELECT move.needs INTO needs FROM (VALUES
            ('ready', 'deleted', 'nothing'), ('ready', 'held', 'nothing'), ('ready', 'dead', 'nothing'),
            ('ready', 'withdrawn', 'nothing'), ('deleted', 'notified', 'nothing'),
            ('held', 'ready', 'decision'), ('dead', 'ready', 'decision'), ('withdrawn', 'ready', 'decision'),
            ('held', 'deleted', 'incident'), ('dead', 'deleted', 'incident'), ('withdrawn', 'deleted', 'incident')
        ) AS move(source, target, needs) WHERE move.source = OLD.state AND move.target = NEW.state;
        IF needs IS NULL THEN
            RAISE EXCEPTION 'command % cannot go from % to %', OLD.key, OLD.state, NEW.state
                USING ERRCODE = 'restrict_violation';
        END IF;
        IF needs = 'incident' AND NOT EXISTS (
            SELECT FROM ledger_incident i WHERE i.command_id = OLD.id AND i.cycle = OLD.cycle
        ) THEN
            RAISE EXCEPTION 'command % cannot go from % to % without an incident', OLD.key, OLD.state, NEW.state
                USING ERRCODE = 'restrict_violation';
        END IF;
    END IF;
    IF NEW.cycle <> OLD.cycle + (coalesce(needs, '') = 'decision')::int THEN
        RAISE EXCEPTION 'command %: a cycle begins with a decision, and only then', OLD.key
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF needs = 'decision' AND NOT EXISTS (
        SELECT FROM ledger_decision d WHERE d.command_id = OLD.id AND d.cycle = NEW.cycle
    ) THEN
        RAISE EXCEPTION 'command % cannot go from % to % without a decision', OLD.key, OLD.state, NEW.state
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;

-- The two moves of a command that succeeds are let pass here: calling the function for a thousand would cost as much as
-- all else that settling does to them.
CREATE TRIGGER guard_command BEFORE UPDATE ON ledger_cleanupcommand FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND NOT (
              OLD.state = 'ready' AND NEW.state = 'deleted' OR OLD.state = 'deleted' AND NEW.state = 'notified')
          OR OLD.cycle <> NEW.cycle OR
          (OLD.key, OLD.tenant_id, OLD.bucket_id, OLD.policy_id, OLD.revision_id, OLD.asset, OLD.target_count, OLD.bytes,
           OLD.published_at) IS DISTINCT FROM
          (NEW.key, NEW.tenant_id, NEW.bucket_id, NEW.policy_id, NEW.revision_id, NEW.asset, NEW.target_count, NEW.bytes,
           NEW.published_at))
    EXECUTE FUNCTION guard_command();
ALTER TABLE ledger_cleanupcommand ENABLE ALWAYS TRIGGER guard_command;

CREATE FUNCTION guard_command_lease() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'command %: a lease token rises by one at a claim, and only then', OLD.key
        USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER guard_command_lease BEFORE UPDATE ON ledger_cleanupcommand FOR EACH ROW
    WHEN (NEW.lease_token NOT IN (OLD.lease_token, OLD.lease_token + 1)
          OR (NEW.lease_token = OLD.lease_token) <> (NEW.claims = OLD.claims))
    EXECUTE FUNCTION guard_command_lease();
ALTER TABLE ledger_cleanupcommand ENABLE ALWAYS TRIGGER guard_command_lease;

-- A command is born ready, in cycle 0, unclaimed.
CREATE FUNCTION guard_new_commands() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM fresh WHERE state <> 'ready' OR cycle <> 0 OR lease_token <> 0 OR lease_until IS NOT NULL) THEN
        RAISE EXCEPTION 'a command begins ready, in cycle 0, unclaimed' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER guard_new_commands AFTER INSERT ON ledger_cleanupcommand REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION guard_new_commands();
ALTER TABLE ledger_cleanupcommand ENABLE ALWAYS TRIGGER guard_new_commands;

CREATE TRIGGER keep_commands BEFORE DELETE OR TRUNCATE ON ledger_cleanupcommand
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_cleanupcommand ENABLE ALWAYS TRIGGER keep_commands;

-- A target names one exact version for ever; only compaction removes it.
CREATE FUNCTION guard_target() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'target % of command %: what it names cannot change, and what is gone stays gone',
        OLD.ordinal, OLD.command_id USING ERRCODE = 'restrict_violation';
END
$$;
CREATE TRIGGER guard_target BEFORE UPDATE ON ledger_commandtarget FOR EACH ROW
    WHEN (OLD.gone_at IS DISTINCT FROM NEW.gone_at AND OLD.gone_at IS NOT NULL OR
          (OLD.command_id, OLD.ordinal, OLD.object_version_id, OLD.bucket_id, OLD.key, OLD.version_id, OLD.incarnation,
           OLD.etag, OLD.size, OLD.stored_at, OLD.role) IS DISTINCT FROM
          (NEW.command_id, NEW.ordinal, NEW.object_version_id, NEW.bucket_id, NEW.key, NEW.version_id, NEW.incarnation,
           NEW.etag, NEW.size, NEW.stored_at, NEW.role))
    EXECUTE FUNCTION guard_target();
ALTER TABLE ledger_commandtarget ENABLE ALWAYS TRIGGER guard_target;

-- Compaction may remove the details of a command whose summary is written; nobody else may, and nobody may empty a table.
CREATE FUNCTION keep_unless_compacted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM ledger_commandsummary s WHERE s.command_id = OLD.command_id) THEN
        RAISE EXCEPTION '% of command % is kept until the command is compacted', TG_TABLE_NAME, OLD.command_id
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END
$$;
CREATE TRIGGER keep_unless_compacted BEFORE DELETE ON ledger_commandtarget
    FOR EACH ROW EXECUTE FUNCTION keep_unless_compacted();
CREATE TRIGGER keep_unless_compacted BEFORE DELETE ON ledger_request
    FOR EACH ROW EXECUTE FUNCTION keep_unless_compacted();
CREATE TRIGGER keep_unless_compacted BEFORE DELETE ON ledger_attempt
    FOR EACH ROW EXECUTE FUNCTION keep_unless_compacted();
CREATE TRIGGER keep_all BEFORE TRUNCATE ON ledger_commandtarget FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER keep_all BEFORE UPDATE OR TRUNCATE ON ledger_request
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER keep_all BEFORE UPDATE OR TRUNCATE ON ledger_attempt
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_commandtarget ENABLE ALWAYS TRIGGER keep_unless_compacted;
ALTER TABLE ledger_commandtarget ENABLE ALWAYS TRIGGER keep_all;
ALTER TABLE ledger_request ENABLE ALWAYS TRIGGER keep_unless_compacted;
ALTER TABLE ledger_request ENABLE ALWAYS TRIGGER keep_all;
ALTER TABLE ledger_attempt ENABLE ALWAYS TRIGGER keep_unless_compacted;
ALTER TABLE ledger_attempt ENABLE ALWAYS TRIGGER keep_all;

-- Locators have a retention of their own; they never change.
CREATE TRIGGER keep_all BEFORE UPDATE OR TRUNCATE ON ledger_receiptlocator
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_receiptlocator ENABLE ALWAYS TRIGGER keep_all;

ALTER TABLE ledger_receipt ADD CONSTRAINT receipt_digest CHECK (digest = sha256(body));

-- A claim stays a heap-only update, and settled rows are cleaned up soon.
ALTER TABLE ledger_cleanupcommand SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01);
ALTER TABLE ledger_commandtarget SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
