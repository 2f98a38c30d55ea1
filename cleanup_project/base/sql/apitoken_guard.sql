-- A token keeps whose it is, who made it, its secret and its scopes; it may end earlier and never later, and once it is
-- revoked it stays so.
CREATE FUNCTION guard_apitoken() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'API token % cannot be changed so', OLD.public_id
        USING ERRCODE = 'restrict_violation', HINT = 'Replace it: a new token takes its place.';
END
$$;

CREATE TRIGGER guard_apitoken BEFORE UPDATE ON base_apitoken FOR EACH ROW
    WHEN (
        NEW.expires_at > OLD.expires_at
        OR (OLD.revoked_at IS NOT NULL AND (OLD.revoked_at, OLD.revoked_by_id, OLD.revoked_reason)
            IS DISTINCT FROM (NEW.revoked_at, NEW.revoked_by_id, NEW.revoked_reason))
        OR (OLD.id, OLD.account_id, OLD.public_id, OLD.digest, OLD.scopes, OLD.created_by_id, OLD.replaces_id)
            IS DISTINCT FROM (
                NEW.id, NEW.account_id, NEW.public_id, NEW.digest, NEW.scopes, NEW.created_by_id, NEW.replaces_id)
    )
    EXECUTE FUNCTION guard_apitoken();
ALTER TABLE base_apitoken ENABLE ALWAYS TRIGGER guard_apitoken;

CREATE TRIGGER keep_apitokens BEFORE DELETE OR TRUNCATE ON base_apitoken
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE base_apitoken ENABLE ALWAYS TRIGGER keep_apitokens;
