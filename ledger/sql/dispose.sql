-- Take the chosen items of one stretch out of a run; returns how many, and the ids of their originals, but for those that
-- no tenant owns any more: nothing destroys them. Parameters: run, first, last bigint; items bigint[] (NULL: all), bucket_id, revision_id bigint (NULL: any), prefix text, since_from, since_to
-- timestamptz (NULL: without end), kind text, until timestamptz, reason text, by bigint. The caller holds the run's row.
WITH chosen AS (
    SELECT i.id, i.ordinal, i.object_version_id, v.tenant_id
    FROM ledger_manifestitem i
    CROSS JOIN LATERAL (
        SELECT o.bucket_id, o.key, o.tenant_id FROM retention_objectversion o WHERE o.id = i.object_version_id LIMIT 1
    ) v
    WHERE i.run_id = %(run)s AND i.ordinal BETWEEN %(first)s AND %(last)s
        AND (%(items)s::bigint[] IS NULL OR i.id = ANY (%(items)s::bigint[]))
        AND (%(bucket_id)s::bigint IS NULL OR v.bucket_id = %(bucket_id)s::bigint)
        AND v.key ^@ %(prefix)s::text
        AND (%(revision_id)s::bigint IS NULL OR i.revision_id = %(revision_id)s::bigint)
        AND (%(since_from)s::timestamptz IS NULL OR i.eligible_since >= %(since_from)s::timestamptz)
        AND (%(since_to)s::timestamptz IS NULL OR i.eligible_since < %(since_to)s::timestamptz)
        AND NOT EXISTS (SELECT FROM ledger_itemdisposition d WHERE d.run_id = i.run_id AND d.ordinal = i.ordinal)
),
made AS (
    INSERT INTO ledger_itemdisposition (run_id, ordinal, item_id, kind, until, reason, by_id)
    SELECT %(run)s, ordinal, id, %(kind)s, %(until)s, %(reason)s, %(by)s FROM chosen ORDER BY ordinal
    RETURNING item_id
)
SELECT (SELECT count(*) FROM made), (
    SELECT coalesce(array_agg(object_version_id), '{}') FROM chosen WHERE tenant_id IS NOT NULL
)
