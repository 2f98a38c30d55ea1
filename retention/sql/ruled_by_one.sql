-- Stands for {ruled} in judge.sql where one rule alone can cover anything of the page: nothing to group and to compare.
-- As there, a rule governs only what it gives an end of retention.
ruled AS (
    SELECT
        id, reason, label AS considered, since,
        CASE WHEN since IS NOT NULL THEN revision_id END AS revision_id,
        CASE WHEN since IS NOT NULL THEN trigger_at END AS trigger_at,
        CASE WHEN since IS NOT NULL THEN event_id END AS event_id
    FROM finding
)
