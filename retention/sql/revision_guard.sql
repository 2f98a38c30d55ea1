-- A published revision never changes and is never removed; a draft may be edited or dropped.
CREATE FUNCTION guard_revision() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'revision % of policy % is published: % is refused', OLD.number, OLD.policy_id, TG_OP
        USING ERRCODE = 'restrict_violation', HINT = 'Draft a new revision that supersedes it.';
END
$$;

CREATE TRIGGER guard_revision BEFORE UPDATE OR DELETE ON retention_policyrevision
    FOR EACH ROW WHEN (OLD.published_at IS NOT NULL) EXECUTE FUNCTION guard_revision();
ALTER TABLE retention_policyrevision ENABLE ALWAYS TRIGGER guard_revision;

CREATE TRIGGER keep_revisions BEFORE TRUNCATE ON retention_policyrevision
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE retention_policyrevision ENABLE ALWAYS TRIGGER keep_revisions;
