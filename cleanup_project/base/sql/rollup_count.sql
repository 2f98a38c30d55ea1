-- Count one source's samples of some closed minutes. Parameters: those of the source (begin, end timestamptz), shortest (the
-- upper end of bucket 0, seconds), growth (of each bucket over the one before), minute (60). Returns each minute that is other
-- than it was. The source is a SELECT of (metric text, tenant text, label text, at timestamptz, took float8: seconds or NULL,
-- number: how many it stands for).
WITH sample (metric, tenant, label, at, took, number) AS (
{source}
),
placed AS (
    SELECT
        metric, tenant, label, number, date_trunc('minute', at) AS begins_at,
        CASE WHEN took < 0 THEN 0 ELSE took END AS took, -- two clocks may have told the two times
        CASE
            WHEN took IS NULL THEN -1
            ELSE ceil(ln(greatest(took, %(shortest)s::float8) / %(shortest)s::float8) / ln(%(growth)s::float8))
        END AS bucket
    FROM sample
),
written AS (
    INSERT INTO base_rollup AS r (metric, seconds, tenant, begins_at, label, bucket, n, greatest)
    SELECT metric, %(minute)s, coalesce(tenant, ''), begins_at, label, bucket, sum(number), max(took)
    FROM placed
    GROUP BY GROUPING SETS ((metric, tenant, begins_at, label, bucket), (metric, begins_at, label, bucket))
    ON CONFLICT (metric, seconds, tenant, begins_at, label, bucket) DO UPDATE SET n = excluded.n, greatest = excluded.greatest
        WHERE (r.n, r.greatest) IS DISTINCT FROM (excluded.n, excluded.greatest)
    RETURNING begins_at
)
SELECT DISTINCT begins_at FROM written ORDER BY begins_at
