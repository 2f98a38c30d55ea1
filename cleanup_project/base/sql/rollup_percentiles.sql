-- Percentiles of one metric, by stretch of time and (begins_at NULL) over all of them. Parameters: metric text, seconds int,
-- tenants text[], length interval (to look back), ranks float8[] (0.5 for the median). Returns begins_at, how many, for each rank the number
-- of the bucket that the sample of that rank lies in, and the longest. A rank is the nearest: of n samples, the ceil(rank × n)th.
WITH spread AS MATERIALIZED (
    SELECT begins_at, bucket, sum(n)::float8 AS n, max(greatest) AS greatest
    FROM base_rollup
    WHERE metric = %(metric)s AND seconds = %(seconds)s AND tenant = ANY (%(tenants)s) AND bucket >= 0
        AND begins_at >= date_bin(%(seconds)s * interval '1 s', now() - %(length)s::interval, 'epoch')
    GROUP BY GROUPING SETS ((begins_at, bucket), (bucket))
),
cumulative AS (
    SELECT
        begins_at, bucket, greatest, sum(n) OVER (PARTITION BY begins_at ORDER BY bucket) AS up_to,
        sum(n) OVER (PARTITION BY begins_at) AS total
    FROM spread
)
SELECT
    begins_at, total::bigint,
    ARRAY[
        min(bucket) FILTER (WHERE up_to >= ceil((%(ranks)s::float8[])[1] * total)),
        min(bucket) FILTER (WHERE up_to >= ceil((%(ranks)s::float8[])[2] * total)),
        min(bucket) FILTER (WHERE up_to >= ceil((%(ranks)s::float8[])[3] * total))
    ],
    max(greatest)
FROM cumulative
GROUP BY begins_at, total
ORDER BY begins_at NULLS FIRST
