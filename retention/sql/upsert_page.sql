-- The one upsert of a page. An observation counts only where it is later than all that is known of its version, its end
-- included; what we destroyed never comes back (sql/survived.sql raises the alarm instead).
-- A new derivative is not standalone until coupling has looked for its original: it may be on the next page.
INSERT INTO retention_objectversion AS v (
    bucket_id, key, version_id, incarnation, etag, size, stored_at, is_latest, is_delete_marker, storage_class,
    tenant_id, asset, series, retention_class, role, original_bucket_id, original_key, original_version_id, dated_at,
    stated, standalone, source, first_observed_at, observed_at, listed_at, gone_at, gone_reason
)
SELECT
    %(bucket)s, key, version_id, incarnation, etag, size, stored_at, coalesce(is_latest, false), is_delete_marker,
    storage_class, tenant_id, asset, series, retention_class, role, original_bucket_id, original_key,
    original_version_id, dated_at, stated, role = 'original' OR is_delete_marker, %(source)s,
    -- When we learned of it: scans at an earlier as_of must not meet it, however old the file that was imported.
    CASE WHEN %(listing)s THEN %(observed_at)s ELSE statement_timestamp() END,
    %(observed_at)s, CASE WHEN %(listing)s THEN %(observed_at)s END, NULL, ''
FROM catalogue_page
ORDER BY key, version_id, incarnation
ON CONFLICT (bucket_id, key, version_id, incarnation) DO UPDATE SET
    etag = EXCLUDED.etag,
    size = EXCLUDED.size,
    stored_at = EXCLUDED.stored_at,
    is_latest = EXCLUDED.is_latest,
    is_delete_marker = EXCLUDED.is_delete_marker,
    storage_class = EXCLUDED.storage_class,
    tenant_id = EXCLUDED.tenant_id,
    asset = EXCLUDED.asset,
    series = EXCLUDED.series,
    retention_class = EXCLUDED.retention_class,
    role = EXCLUDED.role,
    original_bucket_id = EXCLUDED.original_bucket_id,
    original_key = EXCLUDED.original_key,
    original_version_id = EXCLUDED.original_version_id,
    dated_at = EXCLUDED.dated_at,
    stated = EXCLUDED.stated,
    standalone = EXCLUDED.standalone OR (
        v.standalone AND v.role = EXCLUDED.role AND v.gone_at IS NULL
        AND (v.original_bucket_id, v.original_key) = (EXCLUDED.original_bucket_id, EXCLUDED.original_key)
    ),
    source = EXCLUDED.source,
    observed_at = EXCLUDED.observed_at,
    listed_at = coalesce(EXCLUDED.listed_at, v.listed_at),
    gone_at = NULL,
    gone_reason = '',
    parked_by_id = CASE WHEN v.gone_at IS NULL AND (
        v.tenant_id, v.retention_class, v.stored_at, v.dated_at, v.role, v.original_bucket_id, v.original_key,
        v.original_version_id
    ) IS NOT DISTINCT FROM (
        EXCLUDED.tenant_id, EXCLUDED.retention_class, EXCLUDED.stored_at, EXCLUDED.dated_at, EXCLUDED.role,
        EXCLUDED.original_bucket_id, EXCLUDED.original_key, EXCLUDED.original_version_id
    ) THEN v.parked_by_id END
WHERE EXCLUDED.observed_at > greatest(v.observed_at, v.gone_at) AND v.gone_reason <> 'destroyed'
