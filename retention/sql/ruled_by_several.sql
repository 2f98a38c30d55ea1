-- Stands for {ruled} in judge.sql: what all rules that cover a version say together, and the one that governs it.
governed AS (
    -- The latest end of retention governs; of two policies with the same end, the older one.
    SELECT DISTINCT ON (id) id, revision_id, trigger_at, event_id, since
    FROM finding WHERE since IS NOT NULL ORDER BY id, since DESC, policy_id
),
said AS (
    SELECT id, min(reason) AS reason, string_agg(label, '","' ORDER BY revision_id) AS considered FROM finding GROUP BY id
),
ruled AS (
    SELECT said.id, reason, considered, revision_id, trigger_at, event_id, since
    FROM said LEFT JOIN governed ON governed.id = said.id
)
