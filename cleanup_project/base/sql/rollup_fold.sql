-- Sum shorter stretches up into the longer ones that changed minutes lie in. Parameters: metrics text[], finer, coarser
-- (seconds), first, last timestamptz (the first and the last minute that changed).
INSERT INTO base_rollup AS r (metric, seconds, tenant, begins_at, label, bucket, n, greatest)
SELECT
    f.metric, %(coarser)s, f.tenant, date_bin(%(coarser)s * interval '1 s', f.begins_at, 'epoch'), f.label, f.bucket,
    sum(f.n), max(f.greatest)
FROM base_rollup f
WHERE f.seconds = %(finer)s AND f.metric = ANY (%(metrics)s)
    AND f.begins_at >= date_bin(%(coarser)s * interval '1 s', %(first)s::timestamptz, 'epoch')
    AND f.begins_at < date_bin(%(coarser)s * interval '1 s', %(last)s::timestamptz, 'epoch') + %(coarser)s * interval '1 s'
GROUP BY 1, 3, 4, 5, 6
ON CONFLICT (metric, seconds, tenant, begins_at, label, bucket) DO UPDATE SET n = excluded.n, greatest = excluded.greatest
    WHERE (r.n, r.greatest) IS DISTINCT FROM (excluded.n, excluded.greatest)
