-- Before the upsert, put into the page what it must not replace: facts that an import stated, unless this page states
-- them anew; and, in a page that is no listing, whatever a listing has shown.
UPDATE catalogue_page p
SET
    tenant_id = CASE WHEN 'tenant' = ANY(k.kept) THEN k.tenant_id ELSE p.tenant_id END,
    asset = CASE WHEN 'asset' = ANY(k.kept) THEN k.asset ELSE p.asset END,
    series = CASE WHEN 'series' = ANY(k.kept) THEN k.series ELSE p.series END,
    retention_class = CASE WHEN 'retention_class' = ANY(k.kept) THEN k.retention_class ELSE p.retention_class END,
    dated_at = CASE WHEN 'dated_at' = ANY(k.kept) THEN k.dated_at ELSE p.dated_at END,
    role = CASE WHEN 'coupling' = ANY(k.kept) THEN k.role ELSE p.role END,
    original_bucket_id = CASE WHEN 'coupling' = ANY(k.kept) THEN k.original_bucket_id ELSE p.original_bucket_id END,
    original_key = CASE WHEN 'coupling' = ANY(k.kept) THEN k.original_key ELSE p.original_key END,
    original_version_id = CASE WHEN 'coupling' = ANY(k.kept) THEN k.original_version_id ELSE p.original_version_id END,
    stated = p.stated || k.kept,
    etag = CASE WHEN k.shown THEN k.etag ELSE p.etag END,
    size = CASE WHEN k.shown THEN k.size ELSE p.size END,
    stored_at = CASE WHEN k.shown THEN k.stored_at ELSE p.stored_at END,
    storage_class = CASE WHEN k.shown THEN k.storage_class ELSE p.storage_class END,
    is_delete_marker = CASE WHEN k.shown THEN k.is_delete_marker ELSE p.is_delete_marker END,
    is_latest = CASE WHEN k.shown THEN k.is_latest ELSE coalesce(p.is_latest, k.is_latest) END
FROM (
    SELECT
        v.*, v.listed_at IS NOT NULL AND NOT %(listing)s AS shown,
        ARRAY(SELECT unnest(v.stated) EXCEPT SELECT unnest(q.stated)) AS kept
    FROM catalogue_page q
    JOIN retention_objectversion v ON v.bucket_id = %(bucket)s AND v.key = q.key
        AND v.version_id = q.version_id AND v.incarnation = q.incarnation
    WHERE v.stated <> '{}' OR NOT %(listing)s
    OFFSET 0  -- or the planner would work out `kept` anew for each column
) k
WHERE p.key = k.key AND p.version_id = k.version_id AND p.incarnation = k.incarnation
