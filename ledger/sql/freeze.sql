-- Appended to retention/sql/judge.sql: from verdicts to a frozen part, in one statement.
-- Further parameters: run bigint, part bigint, ordinal bigint (the last one given), tenant text, own bigint[] (the
-- revisions of the run's policy), enforced jsonb ([{bucket_id, prefix}]; NULL in a dry run, which looks everywhere).
--
-- A line is canonical JSON (RFC 8785): members sorted, strings escaped as to_json does, which is what the RFC asks for. It
-- says nothing of the run, so that a dry run and the run after it can be compared line by line. It is put together with ||:
-- concat() over as many arguments took ten times as long.
,
enforcement AS MATERIALIZED (
    SELECT bucket_id, prefix FROM jsonb_to_recordset(%(enforced)s::jsonb) AS e (bucket_id bigint, prefix text)
),
due AS MATERIALIZED (
    SELECT * FROM verdict WHERE reason = 11 AND revision_id = ANY (%(own)s::bigint[])
),
chosen AS (
    SELECT due.*, row_number() OVER (ORDER BY place) + %(ordinal)s::bigint AS ordinal
    FROM due
    WHERE %(enforced)s::jsonb IS NULL OR (
        EXISTS (SELECT FROM enforcement e WHERE e.bucket_id = due.bucket_id AND due.key ^@ e.prefix)
        AND NOT EXISTS (
            SELECT FROM derivative d WHERE d.original_id = due.id AND NOT EXISTS (
                SELECT FROM enforcement e WHERE e.bucket_id = d.bucket_id AND d.key ^@ e.prefix
            )
        )
    )
),
taken_along AS (
    SELECT
        d.original_id, count(*) AS targets, sum(d.size)::bigint AS bytes,
        string_agg(
            ',{"bucket":' || to_json(b.name)::text || ',"etag":' || to_json(d.etag)::text
            || ',"incarnation":"' || d.incarnation || '","key":' || to_json(d.key)::text
            || ',"object_version":' || d.id || ',"role":"derivative","size":' || d.size
            || ',"stored_at":"' || to_char(d.stored_at AT TIME ZONE 'UTC', %(instant)s)
            || '","version_id":' || to_json(d.version_id)::text || '}',
            '' ORDER BY d.bucket_id, d.key, d.version_id
        ) AS line
    FROM derivative d JOIN retention_bucket b ON b.id = d.bucket_id
    GROUP BY d.original_id
),
keyed AS (
    SELECT
        c.*, b.name AS bucket, r.policy, r.number, r.cutoff, r.words, r.trigger,
        1 + coalesce(t.targets, 0) AS targets, c.size + coalesce(t.bytes, 0) AS bytes, coalesce(t.line, '') AS taken_along,
        -- tenant:asset:version:policy-revision. No field needs escaping: the columns of tenant, asset and policy hold an
        -- alphabet without colon and percent sign. A version id that is not plain, is long, or is `null` and so mutable,
        -- is replaced by ~ and a digest of what it names.
        %(tenant)s::text || ':' || c.asset || ':' || CASE
            WHEN c.incarnation = '' AND c.version_id <> 'null' AND length(c.version_id) <= 64
                AND c.version_id !~ '[^A-Za-z0-9._-]' THEN c.version_id
            ELSE '~' || left(encode(sha256(
                convert_to(b.name, 'UTF8') || '\x00' || convert_to(c.key, 'UTF8') || '\x00'
                || convert_to(c.version_id, 'UTF8') || '\x00' || convert_to(c.incarnation, 'UTF8')
            ), 'hex'), 40)
        END || ':' || r.policy || '-' || r.number AS command_key
    FROM chosen c
    JOIN rule r ON r.revision_id = c.revision_id
    JOIN retention_bucket b ON b.id = c.bucket_id
    LEFT JOIN taken_along t ON t.original_id = c.id
    OFFSET 0 -- so that a command key is made once, and not wherever it is read
),
line AS (
    SELECT
        ordinal, id, revision_id, since, command_key, targets, bytes,
        '{"asset":' || to_json(asset)::text || ',"bytes":' || bytes || ',"command_key":' || to_json(command_key)::text
        || ',"eligible_since":"' || to_char(since AT TIME ZONE 'UTC', %(instant)s)
        || '","policy":"' || policy || '","revision":' || number
        || ',"targets":[{"bucket":' || to_json(bucket)::text || ',"etag":' || to_json(etag)::text
        || ',"incarnation":"' || incarnation || '","key":' || to_json(key)::text
        || ',"object_version":' || id || ',"role":"' || CASE WHEN is_delete_marker THEN 'delete_marker' ELSE 'original' END
        || '","size":' || size || ',"stored_at":"' || to_char(stored_at AT TIME ZONE 'UTC', %(instant)s)
        || '","version_id":' || to_json(version_id)::text || '}' || taken_along
        || '],"tenant":"' || %(tenant)s::text || '","why":{"considered":["' || considered
        || '"],"cutoff":"' || cutoff || '","holds":0,"period":"' || words || '","trigger":"' || trigger
        || '","trigger_at":"' || to_char(trigger_at AT TIME ZONE 'UTC', %(instant)s) || '"}}' AS line
    FROM keyed
),
item AS MATERIALIZED (
    SELECT *, sha256(convert_to(line, 'UTF8')) AS digest FROM line
),
written AS (
    INSERT INTO ledger_manifestitem (
        run_id, part_id, ordinal, command_key, revision_id, object_version_id, eligible_since, target_count, bytes,
        line, digest
    )
    SELECT %(run)s::bigint, %(part)s::bigint, ordinal, command_key, revision_id, id, since, targets, bytes, line, digest
    FROM item ORDER BY ordinal
),
parked AS (
    -- What a hold keeps out need not be read again until that hold is released.
    UPDATE retention_objectversion v SET parked_by_id = verdict.hold_id
    FROM verdict
    WHERE v.id = verdict.id AND verdict.reason = 10
        AND v.id = ANY (%(ids)s::bigint[]) -- said twice, so that the index is probed and never walked
)
SELECT
    count(*), coalesce(sum(targets), 0)::bigint, coalesce(sum(bytes), 0)::bigint,
    encode(sha256(coalesce(string_agg(digest, ''::bytea ORDER BY ordinal), ''::bytea)), 'hex'),
    (SELECT count(*) FROM verdict),
    (SELECT count(*) FROM verdict WHERE reason = 10),
    (SELECT count(*) FROM due) - count(*)
FROM item
