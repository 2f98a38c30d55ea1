-- Appended to retention/sql/judge.sql: from verdicts to a frozen part, in one statement.
-- Further parameters: run bigint, number int and key text (of the part), "end" jsonb (its cursor, but for the ordinal),
-- ordinal bigint (the last one given), tenant text, own bigint[] (the revisions of the run's policy), enforced jsonb
-- ([{bucket_id, prefix}]; NULL in a dry run, which looks everywhere), instant text (to_char's form of an instant).
--
-- A line is canonical JSON (RFC 8785): members sorted, strings escaped as to_json does, which is what the RFC asks for. It
-- says nothing of the run, so that a dry run and the run after it can be compared line by line. A member whose value is NULL
-- is left out: format() makes nothing of it.
,
enforcement AS MATERIALIZED (
    SELECT bucket_id, prefix FROM jsonb_to_recordset(%(enforced)s::jsonb) AS e (bucket_id bigint, prefix text)
),
tally AS (
    SELECT
        count(*) AS read, count(*) FILTER (WHERE reason = 11) AS held,
        count(*) FILTER (WHERE reason = 12 AND revision_id = ANY (%(own)s::bigint[])) AS due
    FROM verdict
),
chosen AS (
    SELECT v.*, row_number() OVER (ORDER BY place) + %(ordinal)s::bigint AS ordinal
    FROM verdict v
    WHERE reason = 12 AND revision_id = ANY (%(own)s::bigint[]) AND (%(enforced)s::jsonb IS NULL OR (
        EXISTS (SELECT FROM enforcement e WHERE e.bucket_id = v.bucket_id AND v.key ^@ e.prefix)
        AND NOT EXISTS (
            SELECT FROM derivative d WHERE d.original_id = v.id AND NOT EXISTS (
                SELECT FROM enforcement e WHERE e.bucket_id = d.bucket_id AND d.key ^@ e.prefix
            )
        )
    ))
),
taken_along AS (
    SELECT
        d.original_id, count(*) AS targets, sum(d.size)::bigint AS bytes,
        string_agg(
            format(
                ',{"bucket":%%s,"etag":%%s,"incarnation":"%%s","key":%%s,"object_version":%%s,"role":"derivative","size":%%s,'
                '"stored_at":"%%s","version_id":%%s}',
                to_json(b.name), to_json(d.etag), d.incarnation, to_json(d.key), d.id, d.size,
                to_char(d.stored_at AT TIME ZONE 'UTC', %(instant)s), to_json(d.version_id)
            ),
            '' ORDER BY d.bucket_id, d.key, d.version_id
        ) AS line
    FROM derivative d JOIN retention_bucket b ON b.id = d.bucket_id
    GROUP BY d.original_id
),
keyed AS (
    SELECT
        c.*, b.name AS bucket, r.policy, r.number, r.cutoff, r.words, r.trigger,
        1 + coalesce(t.targets, 0) AS targets, c.size + coalesce(t.bytes, 0) AS bytes, t.line AS taken_along,
        to_char(c.stored_at AT TIME ZONE 'UTC', %(instant)s) AS stored,
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
item AS (
    SELECT
        ordinal, id, revision_id, since, command_key, targets, bytes,
        format(
            '{"asset":%%s,"bytes":%%s,"command_key":%%s,"eligible_since":"%%s","policy":"%%s","revision":%%s,'
            '"targets":[{"bucket":%%s,"etag":%%s,"incarnation":"%%s","key":%%s,"object_version":%%s,"role":"%%s","size":%%s,'
            '"stored_at":"%%s","version_id":%%s}%%s],"tenant":"%%s","why":{"considered":["%%s"],"cutoff":"%%s"%%s%%s,"holds":0,'
            '"period":"%%s","trigger":"%%s","trigger_at":"%%s"}}',
            to_json(asset), bytes, to_json(command_key), to_char(since AT TIME ZONE 'UTC', %(instant)s), policy, number,
            to_json(bucket), to_json(etag), incarnation, to_json(key), id,
            CASE WHEN is_delete_marker THEN 'delete_marker' ELSE 'original' END, size, stored, to_json(version_id),
            taken_along, %(tenant)s::text, considered, cutoff, ',"event":' || event_id,
            ',"extended_until":"' || to_char(extended_until AT TIME ZONE 'UTC', %(instant)s) || '"', words, trigger,
            CASE WHEN trigger_at = stored_at THEN stored ELSE to_char(trigger_at AT TIME ZONE 'UTC', %(instant)s) END
        ) AS line
    FROM keyed
    OFFSET 0 -- so that a line is made once
),
part AS MATERIALIZED (
    SELECT nextval(pg_get_serial_sequence('ledger_manifestpart', 'id')) AS id
),
written AS (
    INSERT INTO ledger_manifestitem (
        run_id, part_id, ordinal, command_key, revision_id, object_version_id, eligible_since, target_count, bytes,
        line, digest
    )
    SELECT
        %(run)s::bigint, part.id, ordinal, command_key, revision_id, item.id, since, targets, bytes,
        line, sha256(convert_to(line, 'UTF8'))
    FROM item CROSS JOIN part
    RETURNING ordinal, target_count, bytes, digest, eligible_since
),
parked AS (
    -- What a hold keeps out need not be read again until that hold is released.
    UPDATE retention_objectversion v SET parked_by_id = verdict.hold_id
    FROM verdict
    WHERE v.id = verdict.id AND verdict.reason = 11
        AND v.id = ANY (ARRAY(SELECT id FROM verdict WHERE reason = 11)) -- said twice: the index is probed, never walked
),
summed AS (
    SELECT
        count(*) AS items, coalesce(sum(target_count), 0) AS targets, coalesce(sum(bytes), 0) AS bytes,
        min(eligible_since) AS oldest,
        encode(sha256(coalesce(string_agg(digest, ''::bytea ORDER BY ordinal), ''::bytea)), 'hex') AS digest
    FROM written
)
INSERT INTO ledger_manifestpart (
    id, run_id, number, key, cursor, digest, item_count, target_count, bytes, read, held, not_enforced, oldest
)
SELECT
    part.id, %(run)s::bigint, %(number)s::int, %(key)s::text,
    %(end)s::jsonb || jsonb_build_object('ordinal', %(ordinal)s::bigint + items),
    digest, items, targets, bytes, read, held, due - items, oldest
FROM part CROSS JOIN summed CROSS JOIN tally
RETURNING id, run_id, number, key, digest, item_count, target_count, bytes, read, held, not_enforced
