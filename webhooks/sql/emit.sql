-- Events and the deliveries that they owe, in one statement: an event is settled at once exactly if it owes none.
-- Only the head of a lane is due; the rest of it waits at infinity until it is promoted.
WITH endpoint AS MATERIALIZED (
    SELECT id, event_types FROM webhooks_endpoint WHERE tenant = %(tenant)b
),
subscription AS MATERIALIZED (
    SELECT t.type, e.id AS endpoint_id
    FROM (SELECT DISTINCT unnest(%(types)b::text[]) AS type) t
    JOIN endpoint e ON t.type = ANY (e.event_types) OR e.event_types = '{*}'
),
event AS (
    INSERT INTO webhooks_outboxevent (
        event_id, tenant, type, subject, name, occurrence, command_key, lane_id, sequence, schema_version, body,
        body_sha256, emitted_at, settled_at
    )
    SELECT
        n.event_id, %(tenant)b, n.type, n.subject, n.name, n.occurrence, n.command_key, n.lane_id, n.sequence,
        %(schema_version)b, n.body, n.body_sha256, %(at)b,
        CASE WHEN n.type IN (SELECT s.type FROM subscription s) THEN NULL ELSE now() END
    FROM unnest(
        %(ids)b::text[], %(types)b::text[], %(subjects)b::text[], %(names)b::text[], %(occurrences)b::text[],
        %(command_keys)b::text[], %(lanes)s::bigint[], %(sequences)s::bigint[], %(bodies)b::bytea[], %(digests)b::bytea[]
    ) AS n (event_id, type, subject, name, occurrence, command_key, lane_id, sequence, body, body_sha256)
    RETURNING id, event_id, type, lane_id, sequence
),
owed AS (
    SELECT
        e.id, e.lane_id, e.sequence, s.endpoint_id,
        row_number() OVER (PARTITION BY s.endpoint_id, e.lane_id ORDER BY e.sequence) = 1 AS first
    FROM event e JOIN subscription s ON s.type = e.type
),
delivery AS (
    INSERT INTO webhooks_delivery (
        event_id, endpoint_id, tenant, lane_id, sequence, state, due_at, attempts, lease_token, last_class, last_error,
        cancel_reason
    )
    SELECT
        o.id, o.endpoint_id, %(tenant)b, o.lane_id, o.sequence, 'pending',
        CASE
            -- A subselect with LIMIT probes the index for each lane; a join could read the whole table.
            WHEN o.first AND (
                SELECT 1 FROM webhooks_delivery d
                WHERE d.endpoint_id = o.endpoint_id AND d.lane_id = o.lane_id AND d.state = 'pending' LIMIT 1
            ) IS NULL THEN now()
            ELSE 'infinity'
        END,
        0, 0, '', '', ''
    FROM owed o ORDER BY o.id, o.endpoint_id
)
SELECT event_id, id FROM event
