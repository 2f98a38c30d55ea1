-- Turn the items of one sealed part that are not exempted into commands: new ones, adopted ones, and those that cannot be. Parameters: run, part,
-- tenant, policy bigint, as_of timestamptz (of the run). The caller holds the run's row, the tenant's hold lock, and the rows of every target in id order.
WITH item AS MATERIALIZED (
    SELECT i.id, i.ordinal, i.command_key, i.revision_id, i.eligible_since, i.target_count, i.bytes,
        i.line::json -> 'targets' AS targets, i.line::json ->> 'asset' AS asset, r.priority
    FROM ledger_manifestitem i JOIN retention_policyrevision r ON r.id = i.revision_id
    WHERE i.part_id = %(part)s AND i.run_id = %(run)s AND i.ordinal BETWEEN %(first)s AND %(last)s
        AND NOT EXISTS (SELECT FROM ledger_itemdisposition d WHERE d.run_id = i.run_id AND d.ordinal = i.ordinal)
),
target AS MATERIALIZED (
    -- The planner takes the items of a run that it has no figures of for one. So the versions are probed one by one (LIMIT),
    -- and the item goes along with its targets: as joins, both would be made anew for each item of a thousand.
    SELECT item.*, t.*, v.bucket_id, v.retention_class, v.destroyed
    FROM item
    CROSS JOIN LATERAL ROWS FROM (json_to_recordset(item.targets) AS (
        etag text, incarnation text, key text, object_version bigint, role text, size bigint, stored_at timestamptz,
        version_id text
    )) WITH ORDINALITY AS t (etag, incarnation, key, object_version, role, size, stored_at, version_id, place)
    CROSS JOIN LATERAL (
        SELECT o.bucket_id, o.retention_class, o.gone_reason = 'destroyed' AS destroyed
        FROM retention_objectversion o WHERE o.id = t.object_version LIMIT 1
    ) v
),
taken AS (
    SELECT DISTINCT target.command_key FROM target
    JOIN ledger_commandtarget o ON o.object_version_id = target.object_version AND o.active
),
destroyed AS (
    -- By another command, whose targets may have been compacted away since this manifest was frozen.
    SELECT DISTINCT command_key FROM target WHERE target.destroyed
),
freed AS (
    -- A release destroys nothing: what a hold has covered since the manifest's instant passes a new run.
    SELECT DISTINCT target.command_key
    FROM (
        SELECT DISTINCT length(p.prefix) AS length FROM retention_holdprefix p JOIN retention_legalhold h ON h.id = p.hold_id
        WHERE h.tenant_id = %(tenant)s AND h.released_at > %(as_of)s
    ) lengths
    CROSS JOIN target
    JOIN retention_holdprefix p ON p.bucket_id = target.bucket_id AND p.prefix = left(target.key, lengths.length)
    JOIN retention_legalhold h ON h.id = p.hold_id AND h.tenant_id = %(tenant)s AND h.released_at > %(as_of)s
        AND (target.retention_class = ANY (h.retention_classes) OR '*' = ANY (h.retention_classes))
        AND (h.stored_from IS NULL OR target.stored_at >= h.stored_from)
        AND (h.stored_to IS NULL OR target.stored_at < h.stored_to)
),
known AS MATERIALIZED (
    SELECT c.id, c.key, c.state, c.cycle, c.lease_until, c.inspect_due, c.held_by, c.held_until
    FROM ledger_cleanupcommand c JOIN item ON item.command_key = c.key
    ORDER BY c.id FOR NO KEY UPDATE OF c
),
created AS (
    INSERT INTO ledger_cleanupcommand (
        key, tenant_id, bucket_id, policy_id, revision_id, asset, run_id, item_id, target_count, bytes, eligible_since,
        state, priority, due_at
    )
    SELECT
        command_key, %(tenant)s, bucket_id, %(policy)s, revision_id, asset, %(run)s, id, target_count, bytes,
        eligible_since, 'ready', priority, now()
    FROM target
    WHERE place = 1 AND command_key NOT IN (SELECT key FROM known) AND command_key NOT IN (SELECT command_key FROM taken)
        AND command_key NOT IN (SELECT command_key FROM destroyed) AND command_key NOT IN (SELECT command_key FROM freed)
    ORDER BY ordinal
    RETURNING id, key
),
targets AS (
    INSERT INTO ledger_commandtarget (
        command_id, ordinal, object_version_id, bucket_id, key, version_id, incarnation, etag, size, stored_at, role
    )
    SELECT
        created.id, target.place, target.object_version, target.bucket_id, target.key, target.version_id,
        target.incarnation, target.etag, target.size, target.stored_at, target.role
    FROM target JOIN created ON created.key = target.command_key
    ORDER BY created.id, target.place
),
differing AS MATERIALIZED (
    -- What a command names never changes; what this run authorised is what its item names.
    SELECT DISTINCT known.id FROM known JOIN ledger_commandtarget own ON own.command_id = known.id AND own.gone_at IS NULL
    WHERE NOT EXISTS (
        SELECT FROM target WHERE target.command_key = known.key AND target.object_version = own.object_version_id
    )
),
adoptable AS MATERIALIZED (
    -- Ready ones of an earlier run are taken over as they are, unless a worker has them: its receipt names the run that it
    -- claimed them under, even where its lease has run out. Parked ones begin another cycle, unless a lock of the store still
    -- runs, a look is owed, or another command has taken one of their objects since.
    SELECT known.id, known.cycle, known.state, item.id AS item_id, item.priority, item.eligible_since
    FROM known JOIN item ON item.command_key = known.key
    WHERE known.id NOT IN (SELECT id FROM differing) AND ((known.state = 'ready' AND known.lease_until IS NULL) OR (
        known.state IN ('held', 'dead', 'withdrawn') AND known.inspect_due IS NULL
        AND (known.held_until IS NULL OR known.held_until <= now())
        AND known.key NOT IN (SELECT command_key FROM destroyed) AND known.key NOT IN (SELECT command_key FROM freed)
        AND NOT EXISTS (
            SELECT FROM ledger_commandtarget own
            JOIN ledger_commandtarget o ON o.object_version_id = own.object_version_id AND o.active
            WHERE own.command_id = known.id AND own.gone_at IS NULL AND o.command_id <> known.id
        )
    ))
),
decided AS (
    INSERT INTO ledger_decision (command_id, cycle, kind, run_id, reason, repair, at)
    SELECT id, cycle + 1, 'adopted', %(run)s, 'Found eligible again by an authorised run.', '', now()
    FROM adoptable WHERE state <> 'ready' ORDER BY id
),
skipped AS (
    INSERT INTO ledger_skippeditem (run_id, item_id, command_key, reason, at)
    SELECT %(run)s, item.id, item.command_key, CASE
        WHEN item.command_key IN (SELECT command_key FROM destroyed) AND (known.id IS NULL OR known.state NOT IN ('deleted', 'notified'))
            THEN 'Another command has destroyed one of its objects.'
        WHEN item.command_key IN (SELECT command_key FROM freed) AND (known.id IS NULL OR known.state NOT IN ('deleted', 'notified'))
            THEN 'A legal hold has covered it since, and was released: a later run decides.'
        WHEN known.id IS NULL THEN 'Another command already has one of its objects.'
        WHEN known.state IN ('deleted', 'notified') THEN 'Its command has succeeded already.'
        WHEN known.state = 'ready' AND known.lease_until IS NOT NULL THEN 'A worker has it in hand for an earlier run: a later one decides.'
        WHEN known.inspect_due IS NOT NULL THEN 'What became of an earlier request is not known yet.'
        WHEN known.held_until > now() THEN 'The store still retains it.'
        WHEN known.id IN (SELECT id FROM differing) THEN 'Its command names other targets than this run found.'
        ELSE 'Another command has taken one of its objects since.'
    END, now()
    FROM item LEFT JOIN known ON known.key = item.command_key
    WHERE item.command_key NOT IN (SELECT key FROM created) AND item.id NOT IN (SELECT item_id FROM adoptable)
    ORDER BY item.ordinal
    RETURNING id
)
SELECT
    (SELECT count(*) FROM created),
    (SELECT array_agg(ARRAY[id, item_id, priority::bigint, (state <> 'ready')::int::bigint] ORDER BY id) FROM adoptable),
    (SELECT count(*) FROM skipped),
    (SELECT array_agg(DISTINCT bucket_id) FROM target WHERE place = 1)
