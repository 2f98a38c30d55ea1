-- What remains of one part, as the part's own digest is made, and how many items. Parameters: run, first, last bigint.
SELECT encode(sha256(coalesce(string_agg(i.digest, ''::bytea ORDER BY i.ordinal), ''::bytea)), 'hex'), count(*)
FROM ledger_manifestitem i
WHERE i.run_id = %(run)s AND i.ordinal BETWEEN %(first)s AND %(last)s
    AND NOT EXISTS (SELECT FROM ledger_itemdisposition d WHERE d.run_id = i.run_id AND d.ordinal = i.ordinal)
