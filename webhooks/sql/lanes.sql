-- Parameters: tenant text, subjects json (an array, one text for each notice). Returns each lane and its last sequence, this
-- block's included. One row a subject, in order: two blocks that meet wait for each other in one order, never in a circle.
INSERT INTO webhooks_lane (tenant, subject, n)
SELECT %b::text, subject, count(*)
FROM json_array_elements_text(%b::text::json) AS notice (subject)
GROUP BY subject ORDER BY subject COLLATE "C"
ON CONFLICT (tenant, subject) DO UPDATE SET n = webhooks_lane.n + excluded.n
RETURNING id, subject, n
