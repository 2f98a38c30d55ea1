-- Once, after a restore to an earlier time, as the owner (docs/backup.md).
\set ON_ERROR_STOP on
BEGIN;
-- Sessions that were ended since would be open again.
DELETE FROM base_session;
-- Tokens that were revoked or replaced since would open again: every one ends, and what is still needed is replaced.
UPDATE base_apitoken SET expires_at = greatest(created_at + interval '1 s', now())
WHERE revoked_at IS NULL AND expires_at > now();
-- Numbers that were given since would be given again, to other runs, holds and receipts.
SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, coalesce(last_value, 0) + 1000000)
FROM pg_sequences
WHERE schemaname = current_schema() AND sequencename ~ '^(base|ledger|retention|webhooks)_';
-- What listings saw before the restore is no evidence any more that an object is there: workers look before they delete.
UPDATE retention_objectversion SET listed_at = NULL
WHERE gone_at IS NULL
AND listed_at > now() - (SELECT max(evidence_max_age_hours) FROM retention_policyrevision) * interval '1 hour';
COMMIT;
