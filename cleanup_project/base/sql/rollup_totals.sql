-- How often everything has happened since it was first counted: the totals, and the minutes that are not in them yet. Parameters:
-- sources, metrics text[] (of the same length: which source each metric is of), minute (60), unsettled (seconds).
SELECT metric, label, bucket, sum(n)::bigint
FROM (
    SELECT metric, label, bucket, n FROM base_rolluptotal WHERE metric = ANY (%(metrics)s)
    UNION ALL
    SELECT r.metric, r.label, r.bucket, r.n
    FROM ROWS FROM (unnest(%(sources)s::text[]), unnest(%(metrics)s::text[])) AS own (source, metric)
    JOIN base_rollupmark m ON m.source = own.source
    JOIN base_rollup r ON r.metric = own.metric AND r.seconds = %(minute)s AND r.tenant = ''
        AND r.begins_at >= m.counted_until - %(unsettled)s * interval '1 s'
) counted
GROUP BY metric, label, bucket
ORDER BY metric, label, bucket
