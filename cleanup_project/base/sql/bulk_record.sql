-- Parameters: job bigint, and arrays, one element for each item: ordinals, outcomes, details.
UPDATE base_bulkitem i SET outcome = d.outcome, detail = d.detail, done_at = statement_timestamp()
FROM unnest(%(ordinals)s::int[], %(outcomes)s::text[], %(details)s::text[]) AS d (ordinal, outcome, detail)
WHERE i.job_id = %(job)s AND i.ordinal = d.ordinal
