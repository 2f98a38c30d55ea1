-- Lock every object version that a part's items name, in id order, so that two runs over the same objects take turns.
SELECT FROM retention_objectversion v
WHERE v.id = ANY (ARRAY(
    SELECT (t ->> 'object_version')::bigint
    FROM ledger_manifestitem i CROSS JOIN LATERAL json_array_elements(i.line::json -> 'targets') t
    WHERE i.run_id = %(run)s AND i.ordinal BETWEEN %(first)s AND %(last)s
))
ORDER BY v.id FOR NO KEY UPDATE
