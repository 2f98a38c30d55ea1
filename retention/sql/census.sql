-- Count one page of a bucket, in key order, as it was at `as_of`: what a revision can make eligible, and its bytes.
-- Parameters: bucket, tenant bigint, classes text[] (NULL: any), markers boolean, as_of, stored_from, stored_to
-- timestamptz (NULL: without end), lowest and highest text (the keys of a prefix; NULL: without end), after_key,
-- after_version, after_incarnation text (the last row of the page before), page int.
--
-- What has gone since as_of still counts, and what was first observed since does not, so that the sum over pages read one
-- after the other is that of the one instant.
SELECT
    count(*) FILTER (WHERE counted), coalesce(sum(size) FILTER (WHERE counted), 0)::bigint,
    count(*) FILTER (WHERE counted AND undated), count(*),
    (array_agg(key))[count(*)], (array_agg(version_id))[count(*)], (array_agg(incarnation))[count(*)]
FROM (
    SELECT
        key, version_id, incarnation, size,
        tenant_id = %(tenant)s AND standalone AND (%(markers)s OR NOT is_delete_marker)
        AND (%(classes)s::text[] IS NULL OR retention_class = ANY (%(classes)s::text[]))
        AND (%(stored_from)s::timestamptz IS NULL OR stored_at >= %(stored_from)s::timestamptz)
        AND (%(stored_to)s::timestamptz IS NULL OR stored_at < %(stored_to)s::timestamptz)
        AND first_observed_at <= %(as_of)s AND (gone_at IS NULL OR gone_at > %(as_of)s) AS counted,
        NOT is_delete_marker AND dated_at IS NULL AS undated
    FROM retention_objectversion
    WHERE bucket_id = %(bucket)s AND key >= %(lowest)s AND (%(highest)s::text IS NULL OR key < %(highest)s::text)
        AND (key, version_id, incarnation) > (%(after_key)s, %(after_version)s, %(after_incarnation)s)
    ORDER BY key, version_id, incarnation LIMIT %(page)s
) found
