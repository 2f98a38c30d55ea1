-- How often each label of some metrics happened. Parameters: metrics text[], seconds int, tenants text[], length interval (to look
-- back). The first stretch lies wholly or partly in it.
SELECT metric, label, sum(n)::bigint
FROM base_rollup
WHERE metric = ANY (%(metrics)s) AND seconds = %(seconds)s AND tenant = ANY (%(tenants)s)
    AND begins_at >= date_bin(%(seconds)s * interval '1 s', now() - %(length)s::interval, 'epoch')
GROUP BY metric, label
ORDER BY 3 DESC, 2
