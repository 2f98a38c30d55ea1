-- How many originals of each of several policies have a retention that ends by some instant, of so many rows in the order of
-- the date that starts the clock: how many were read, and how many of these end by then. Parameters: asked jsonb (of each
-- question its place, the instant, and the streams to read: one rule, bucket and class each, up to the latest trigger that
-- can be due by then), most (rows of one question).
SELECT asked.place, counted.*
FROM jsonb_to_recordset(%(asked)s::jsonb) AS asked (place bigint, until timestamptz, streams jsonb)
CROSS JOIN LATERAL (
    SELECT count(*), count(*) FILTER (WHERE due)
    FROM (
        SELECT
            v.key ^@ ANY (s.prefixes)
            AND (s.stored_from IS NULL OR v.stored_at >= s.stored_from)
            AND (s.stored_to IS NULL OR v.stored_at < s.stored_to)
            AND due_at(v.trigger_at, s.period, s.cutoff) <= asked.until AS due
        FROM jsonb_to_recordset(asked.streams) AS s (
            tenant_id bigint, bucket_id bigint, retention_class text, clock text, latest timestamptz, prefixes text[],
            stored_from timestamptz, stored_to timestamptz, period interval, cutoff text
        )
        CROSS JOIN LATERAL (
            (
                SELECT o.key, o.stored_at, o.stored_at AS trigger_at FROM retention_objectversion o
                WHERE s.clock = 'stored_at' AND gone_at IS NULL AND standalone AND parked_by_id IS NULL AND NOT is_delete_marker
                    AND o.tenant_id = s.tenant_id AND o.bucket_id = s.bucket_id
                    AND o.retention_class = s.retention_class COLLATE "C" AND o.stored_at <= s.latest
                ORDER BY o.stored_at, o.id LIMIT %(most)s
            )
            UNION ALL
            (
                SELECT o.key, o.stored_at, o.dated_at FROM retention_objectversion o
                WHERE s.clock = 'dated_at' AND gone_at IS NULL AND standalone AND parked_by_id IS NULL AND NOT is_delete_marker
                    AND o.tenant_id = s.tenant_id AND o.bucket_id = s.bucket_id
                    AND o.retention_class = s.retention_class COLLATE "C" AND o.dated_at <= s.latest
                ORDER BY o.dated_at, o.id LIMIT %(most)s
            )
        ) v
        LIMIT %(most)s
    ) found
) counted
