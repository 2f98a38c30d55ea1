-- Judge a page of object versions at one instant: the same rule as retention/eligibility.py, reason by reason.
-- Parameters: ids bigint[], derivatives bigint[] (scan.derivatives_of the ids), rules jsonb (governing.as_json), as_of
-- timestamptz, without bigint (a hold that is taken for released, or 0). What is appended reads `verdict`: one row for each
-- id that exists, `place` being its place in ids, and `considered` the labels of the revisions that cover it, as the inside
-- of a JSON list of strings.
WITH rule AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(rules)s::jsonb) AS r (
        revision_id bigint, policy_id bigint, label text, policy text, number int, tenant_id bigint,
        bucket_ids bigint[], prefixes text[], retention_classes text[], trigger text, event_type text,
        period interval, words text, cutoff text, keep_newest int,
        retain_permanently boolean, remove_expired_markers boolean, suspended boolean,
        stored_from timestamptz, stored_to timestamptz
    )
),
subject AS MATERIALIZED (
    SELECT
        v.id, asked.place, v.tenant_id, v.bucket_id, v.key, v.version_id, v.incarnation, v.etag, v.size, v.stored_at,
        v.dated_at, v.asset, v.series, v.retention_class, v.role, v.original_bucket_id, v.original_key, v.gone_at,
        v.is_delete_marker
    FROM unnest(%(ids)s::bigint[]) WITH ORDINALITY AS asked(id, place)
    JOIN retention_objectversion v ON v.id = asked.id
    WHERE v.id = ANY(%(ids)s::bigint[]) -- said twice, so that the index is probed and never walked
),
event AS MATERIALIZED (
    -- What was posted by then, and not withdrawn by then. Where no rule waits for an event, nothing is read.
    SELECT
        e.id, e.tenant_id, e.event_type, e.retention_classes, e.occurred_at, b.bucket_id, p.prefix COLLATE "C" AS prefix,
        length(p.prefix) AS length
    FROM retention_retentionevent e
    CROSS JOIN LATERAL unnest(e.bucket_ids) AS b (bucket_id)
    CROSS JOIN LATERAL unnest(e.prefixes) AS p (prefix)
    WHERE e.tenant_id = ANY (ARRAY(SELECT tenant_id FROM rule WHERE trigger = 'event'))
        AND e.event_type = ANY (ARRAY(SELECT event_type FROM rule WHERE trigger = 'event'))
        AND e.posted_at <= %(as_of)s::timestamptz
        AND (e.withdrawn_at IS NULL OR e.withdrawn_at > %(as_of)s::timestamptz)
),
occurred AS (
    -- The latest event of each type that covers a version: the longest retention wins.
    SELECT DISTINCT ON (s.id, e.event_type) s.id, e.event_type, e.occurred_at, e.id AS event_id
    FROM (SELECT DISTINCT length FROM event) lengths
    CROSS JOIN subject s
    JOIN event e ON e.bucket_id = s.bucket_id AND e.prefix = left(s.key, lengths.length) AND e.tenant_id = s.tenant_id
        AND (s.retention_class = ANY (e.retention_classes) OR '*' = ANY (e.retention_classes))
    ORDER BY s.id, e.event_type, e.occurred_at DESC, e.id
),
clocked AS (
    SELECT
        s.id, s.is_delete_marker, r.*, o.event_id,
        CASE r.trigger WHEN 'stored_at' THEN s.stored_at WHEN 'dated_at' THEN s.dated_at ELSE o.occurred_at END AS trigger_at,
        CASE WHEN NOT s.is_delete_marker THEN s.series END AS series
    FROM subject s
    JOIN rule r ON r.tenant_id = s.tenant_id
        AND s.bucket_id = ANY(r.bucket_ids)
        AND (s.retention_class = ANY(r.retention_classes) OR '*' = ANY(r.retention_classes))
        AND s.key ^@ ANY (r.prefixes)
        AND (r.stored_from IS NULL OR s.stored_at >= r.stored_from)
        AND (r.stored_to IS NULL OR s.stored_at < r.stored_to)
        AND (r.remove_expired_markers OR NOT s.is_delete_marker)
    LEFT JOIN occurred o ON o.id = s.id AND o.event_type = r.event_type
),
timed AS (
    SELECT
        *, CASE WHEN NOT retain_permanently AND NOT suspended THEN due_at(trigger_at, period, cutoff) END AS since
    FROM clocked
    OFFSET 0 -- so that a date is worked out once, and not wherever it is read
),
finding AS (
    SELECT
        id, policy_id, revision_id, label, trigger_at, event_id, since,
        CASE
            WHEN retain_permanently THEN 4
            WHEN suspended THEN 5
            WHEN trigger_at IS NULL THEN CASE trigger WHEN 'event' THEN 6 ELSE 7 END
            WHEN since > %(as_of)s::timestamptz THEN 8
            WHEN keep_newest > 0 AND NOT is_delete_marker AND keep_newest > (
                SELECT count(*) FROM (
                    SELECT FROM retention_objectversion g
                    WHERE g.tenant_id = t.tenant_id AND g.series = t.series
                        AND g.gone_at IS NULL AND g.standalone AND NOT g.is_delete_marker
                        AND g.bucket_id = ANY(t.bucket_ids)
                        AND (g.retention_class = ANY(t.retention_classes) OR '*' = ANY(t.retention_classes))
                        AND g.key ^@ ANY (t.prefixes)
                        AND CASE t.trigger WHEN 'stored_at' THEN g.stored_at WHEN 'dated_at' THEN g.dated_at ELSE (
                            SELECT max(e.occurred_at) FROM event e
                            WHERE e.tenant_id = g.tenant_id AND e.event_type = t.event_type AND e.bucket_id = g.bucket_id
                                AND g.key ^@ e.prefix
                                AND (g.retention_class = ANY (e.retention_classes) OR '*' = ANY (e.retention_classes))
                        ) END > t.trigger_at
                    LIMIT t.keep_newest
                ) newer
            ) THEN 9
            ELSE 12
        END AS reason
    FROM timed t
),
{ruled},
derivative AS MATERIALIZED (
    -- A derivative goes with the version that it was surely made from: an explicit parent, else by its time.
    SELECT
        s.id AS original_id, d.id, d.tenant_id, d.bucket_id, d.key, d.version_id, d.incarnation, d.etag, d.size,
        d.stored_at, d.retention_class
    FROM subject s
    JOIN retention_objectversion d ON d.original_bucket_id = s.bucket_id AND d.original_key = s.key
    WHERE d.id = ANY(%(derivatives)s::bigint[]) AND d.role = 'derivative' AND d.gone_at IS NULL
        AND NOT d.is_delete_marker AND s.role = 'original' AND NOT s.is_delete_marker AND CASE
        WHEN d.original_version_id <> '' THEN d.original_version_id = s.version_id
        ELSE s.stored_at <= d.stored_at
            AND NOT EXISTS (
                SELECT FROM retention_objectversion v
                WHERE v.bucket_id = s.bucket_id AND v.key = s.key AND v.id <> s.id
                    AND (v.stored_at BETWEEN s.stored_at AND d.stored_at
                        OR (d.stored_at = s.stored_at AND v.stored_at < s.stored_at))
            )
        END
),
covered AS (
    SELECT t.original_id, min(h.id) AS hold_id
    FROM (
        SELECT id AS original_id, tenant_id, bucket_id, key, retention_class, stored_at FROM subject
        UNION ALL
        SELECT original_id, tenant_id, bucket_id, key, retention_class, stored_at FROM derivative
    ) t
    CROSS JOIN (
        SELECT DISTINCT length(p.prefix) AS length FROM retention_holdprefix p
        JOIN retention_legalhold h ON h.id = p.hold_id AND h.released_at IS NULL
    ) lengths
    JOIN retention_holdprefix p ON p.bucket_id = t.bucket_id AND p.prefix = left(t.key, lengths.length)
    JOIN retention_legalhold h ON h.id = p.hold_id AND h.released_at IS NULL AND h.tenant_id = t.tenant_id
        AND h.id <> %(without)s::bigint
        AND (t.retention_class = ANY(h.retention_classes) OR '*' = ANY(h.retention_classes))
        AND (h.stored_from IS NULL OR t.stored_at >= h.stored_from)
        AND (h.stored_to IS NULL OR t.stored_at < h.stored_to)
    GROUP BY t.original_id
),
decided AS (
    -- Like a hold, an exemption or extension keeps all that would go together.
    SELECT t.original_id, bool_or(d.kind = 'exempt') AS exempt, max(d.until) AS until
    FROM (
        SELECT id AS original_id, id FROM subject
        UNION ALL
        SELECT original_id, id FROM derivative
    ) t
    JOIN retention_disposition d ON d.object_version_id = t.id
    WHERE d.object_version_id = ANY (%(ids)s::bigint[] || %(derivatives)s::bigint[]) -- so that the index is probed
        AND d.ended_at IS NULL AND d.kind <> 'reclassify'
    GROUP BY t.original_id
),
verdict AS MATERIALIZED (
    SELECT
        s.id, s.place, s.bucket_id, s.key, s.version_id, s.incarnation, s.etag, s.size, s.stored_at, s.asset,
        s.is_delete_marker, ruled.revision_id, ruled.trigger_at, ruled.event_id, ruled.considered, covered.hold_id,
        CASE WHEN ruled.since IS NOT NULL THEN greatest(ruled.since, decided.until) END AS since,
        CASE WHEN decided.until > ruled.since THEN decided.until END AS extended_until,
        CASE
            WHEN s.gone_at IS NOT NULL THEN 0
            WHEN s.role = 'derivative' AND NOT s.is_delete_marker AND EXISTS (
                SELECT FROM retention_objectversion v
                WHERE v.bucket_id = s.original_bucket_id AND v.key = s.original_key
                    AND v.gone_at IS NULL AND NOT v.is_delete_marker
            ) THEN 1
            WHEN ruled.id IS NULL THEN 2
            WHEN s.is_delete_marker AND EXISTS (
                SELECT FROM retention_objectversion v
                WHERE v.bucket_id = s.bucket_id AND v.key = s.key AND v.gone_at IS NULL AND NOT v.is_delete_marker
            ) THEN 3
            WHEN ruled.reason < 8 THEN ruled.reason
            WHEN decided.until > %(as_of)s::timestamptz THEN 8
            WHEN ruled.reason < 10 THEN ruled.reason
            WHEN decided.exempt THEN 10
            WHEN covered.hold_id IS NOT NULL THEN 11
            ELSE 12
        END AS reason
    FROM subject s
    LEFT JOIN ruled ON ruled.id = s.id
    LEFT JOIN covered ON covered.original_id = s.id
    LEFT JOIN decided ON decided.original_id = s.id
)
