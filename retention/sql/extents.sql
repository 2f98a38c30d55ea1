-- How much each of several scopes covers now, of so many rows under its prefixes: how many were read, the versions covered and
-- their bytes, and of these how many have a retention that ends by two instants, which nothing but holds keeps from scans.
-- Parameters: asked jsonb (of each scope its place, and stretches that do not overlap), soon, later timestamptz, most (rows of
-- one scope).
--
-- A stretch is bounded by two positions of the identity index, so that no row beside it is read: a bound that may be missing,
-- as in "OR prefix_end IS NULL", would be a filter here, and a stretch be read on to the end of its bucket.
SELECT asked.place, counted.*
FROM jsonb_to_recordset(%(asked)s::jsonb) AS asked (place bigint, stretches jsonb)
CROSS JOIN LATERAL (
    SELECT
        count(*), count(*) FILTER (WHERE covered), coalesce(sum(size) FILTER (WHERE covered), 0)::bigint,
        count(*) FILTER (WHERE covered AND due <= %(soon)s), count(*) FILTER (WHERE covered AND due <= %(later)s)
    FROM (
        SELECT
            v.size, v.gone_at IS NULL AND v.tenant_id = s.tenant_id
            AND (NOT s.originals OR v.standalone AND NOT v.is_delete_marker)
            AND (v.retention_class = ANY (s.retention_classes) OR '*' = ANY (s.retention_classes))
            AND (s.stored_from IS NULL OR v.stored_at >= s.stored_from)
            AND (s.stored_to IS NULL OR v.stored_at < s.stored_to) AS covered,
            CASE WHEN v.parked_by_id IS NULL THEN CASE s.clock
                WHEN 'stored_at' THEN due_at(v.stored_at, s.period, s.cutoff)
                WHEN 'dated_at' THEN due_at(v.dated_at, s.period, s.cutoff)
            END END AS due
        FROM jsonb_to_recordset(asked.stretches) AS s (
            bucket_id bigint, prefix text, end_bucket_id bigint, prefix_end text, tenant_id bigint, retention_classes text[],
            stored_from timestamptz, stored_to timestamptz, originals boolean, clock text, period interval, cutoff text
        )
        CROSS JOIN LATERAL (
            SELECT o.* FROM retention_objectversion o
            WHERE (o.bucket_id, o.key) >= (s.bucket_id, s.prefix COLLATE "C")
                AND (o.bucket_id, o.key) < (s.end_bucket_id, s.prefix_end COLLATE "C")
            ORDER BY o.bucket_id, o.key, o.version_id, o.incarnation LIMIT %(most)s
        ) v
        LIMIT %(most)s
    ) found
) counted
