-- Events and the deliveries that they owe, in one statement: an event is settled at once exactly if it owes none.
-- Parameters: tenant text, at timestamptz, types text[] (each once), and for each notice in order: facts json [{event_id, type,
-- subject, name, occurrence, command_key, lane, sequence, version}, …], bodies bytea[], digests bytea[]; of those that somebody
-- may want with object keys: detailed_ids text[], detailed bytea[]. Returns each event, and whether it is owed.
WITH subscription AS MATERIALIZED (
    SELECT t.type, e.id AS endpoint_id, e.include_keys
    FROM unnest(%(types)b::text[]) AS t (type)
    JOIN webhooks_endpoint e ON t.type = ANY (e.event_types) OR e.event_types = '{*}'
    WHERE e.tenant = %(tenant)b AND e.retired_at IS NULL
),
event AS (
    INSERT INTO webhooks_outboxevent (
        event_id, tenant, type, subject, name, occurrence, command_key, lane_id, sequence, schema_version, body,
        body_sha256, emitted_at, settled_at
    )
    SELECT
        event_id, %(tenant)b, type, subject, name, occurrence, command_key, lane, sequence, version, body, digest, %(at)b,
        CASE WHEN type IN (SELECT type FROM subscription) THEN NULL ELSE now() END
    FROM ROWS FROM (
        json_to_recordset(%(facts)b::text::json) AS (
            event_id text, type text, subject text, name text, occurrence text, command_key text, lane bigint,
            sequence bigint, version smallint
        ),
        unnest(%(bodies)b::bytea[]), unnest(%(digests)b::bytea[])
    ) AS notice (event_id, type, subject, name, occurrence, command_key, lane, sequence, version, body, digest)
    RETURNING id, event_id, type, lane_id, sequence, settled_at
),
detailed AS (
    INSERT INTO webhooks_detailedbody (event_id, body, body_sha256)
    SELECT e.id, d.body, sha256(d.body)
    FROM ROWS FROM (unnest(%(detailed_ids)b::text[]), unnest(%(detailed)b::bytea[])) AS d (event_id, body)
    JOIN event e ON e.event_id = d.event_id
    WHERE e.type IN (SELECT type FROM subscription WHERE include_keys)
),
owed AS (
    SELECT
        e.id, e.lane_id, e.sequence, s.endpoint_id, s.include_keys,
        row_number() OVER (PARTITION BY s.endpoint_id, e.lane_id ORDER BY e.sequence) = 1 AS first
    FROM event e JOIN subscription s ON s.type = e.type
),
delivery AS (
    INSERT INTO webhooks_delivery (
        event_id, endpoint_id, tenant, round, lane_id, sequence, detailed, state, due_at, attempts, lease_token, last_class,
        last_error, cancel_reason
    )
    SELECT
        o.id, o.endpoint_id, %(tenant)b, 0, o.lane_id, o.sequence, o.include_keys, 'pending',
        CASE
            -- Only the head of a lane is due; what stands behind it waits at infinity until it is promoted.
            -- A subselect with ORDER BY and LIMIT probes the index for each lane; a join could read the whole table.
            WHEN o.first AND (
                SELECT 1 FROM webhooks_delivery d
                WHERE d.endpoint_id = o.endpoint_id AND d.lane_id = o.lane_id AND d.state = 'pending'
                ORDER BY d.sequence LIMIT 1
            ) IS NULL THEN now()
            ELSE 'infinity'
        END,
        0, 0, '', '', ''
    FROM owed o ORDER BY o.id, o.endpoint_id
)
SELECT event_id, id, settled_at IS NULL FROM event
