-- The durations of one metric in each stretch of time in which there were any. Parameters: metric text, seconds int, tenants
-- text[], length interval (to look back). Returns begins_at, the buckets and as many numbers (a bucket comes again for each label
-- and tenant), and the longest. Each stretch is looked up by its whole key: asked for all of them at once, the planner reads every
-- metric of that time by rollup_by_time and throws nine tenths away.
SELECT stretch.begins_at, spread.buckets, spread.numbers, spread.greatest
FROM generate_series(
    date_bin(%(seconds)s * interval '1 s', now() - %(length)s::interval, 'epoch'), now(), %(seconds)s * interval '1 s'
) AS stretch (begins_at)
CROSS JOIN LATERAL (
    SELECT array_agg(bucket) AS buckets, array_agg(n) AS numbers, max(greatest) AS greatest
    FROM base_rollup
    WHERE metric = %(metric)s AND seconds = %(seconds)s AND tenant = ANY (%(tenants)s) AND begins_at = stretch.begins_at
        AND bucket >= 0
) spread
WHERE spread.buckets IS NOT NULL
ORDER BY stretch.begins_at
