-- Add minutes that will not change any more to the totals. Parameters: metrics text[], minute (60), first, before timestamptz.
INSERT INTO base_rolluptotal AS t (metric, label, bucket, n)
SELECT metric, label, bucket, sum(n)
FROM base_rollup
WHERE metric = ANY (%(metrics)s) AND seconds = %(minute)s AND tenant = '' AND begins_at >= %(first)s AND begins_at < %(before)s
GROUP BY metric, label, bucket
ON CONFLICT (metric, label, bucket) DO UPDATE SET n = t.n + excluded.n
