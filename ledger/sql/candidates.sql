-- What stretch of a run's items would destroy, by revision and bucket of the original. Parameters: run, first, last bigint.
-- Probed one by one (LIMIT): the planner, which has no figures of a new run, would otherwise read the whole catalogue.
SELECT
    i.revision_id, v.bucket_id, count(*), sum(i.target_count)::bigint, sum(i.bytes)::bigint, sum(v.size)::bigint
FROM ledger_manifestitem i
CROSS JOIN LATERAL (SELECT o.bucket_id, o.size FROM retention_objectversion o WHERE o.id = i.object_version_id LIMIT 1) v
WHERE i.run_id = %(run)s AND i.ordinal BETWEEN %(first)s AND %(last)s
GROUP BY i.revision_id, v.bucket_id
