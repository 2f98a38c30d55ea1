-- Two sealed manifests, item by item: the same where they name the same original, changed where the lines differ. Writes the
-- first differences of each kind, in the order of the manifests, and returns the counts. Parameters: comparison, run, other
-- bigint, listed int. Both sides are read once and hashed by what identifies an item: nothing else of a line is looked at.
WITH pair AS MATERIALIZED (
    SELECT
        a.id AS item_id, b.id AS other_item_id, coalesce(a.ordinal, b.ordinal) AS place,
        CASE WHEN b.id IS NULL THEN 'here' WHEN a.id IS NULL THEN 'there' WHEN a.digest <> b.digest THEN 'changed' END AS kind,
        a.revision_id <> b.revision_id AS revision, a.eligible_since <> b.eligible_since AS eligible_since,
        a.target_count <> b.target_count AS targets, a.bytes <> b.bytes AS bytes
    FROM (SELECT * FROM ledger_manifestitem WHERE run_id = %(run)s) a
    FULL JOIN (SELECT * FROM ledger_manifestitem WHERE run_id = %(other)s) b USING (object_version_id)
),
numbered AS (
    SELECT kind, item_id, other_item_id, row_number() OVER (PARTITION BY kind ORDER BY place) AS ordinal
    FROM pair WHERE kind IS NOT NULL
),
written AS (
    INSERT INTO ledger_manifestdifference (comparison_id, kind, ordinal, item_id, other_item_id)
    SELECT %(comparison)s, kind, ordinal, item_id, other_item_id FROM numbered WHERE ordinal <= %(listed)s
)
SELECT
    count(*) FILTER (WHERE kind IS NULL), count(*) FILTER (WHERE kind = 'here'), count(*) FILTER (WHERE kind = 'there'),
    count(*) FILTER (WHERE kind = 'changed'), count(*) FILTER (WHERE revision), count(*) FILTER (WHERE eligible_since),
    count(*) FILTER (WHERE targets), count(*) FILTER (WHERE bytes),
    count(*) FILTER (WHERE kind = 'changed' AND NOT (revision OR eligible_since OR targets OR bytes))
FROM pair
