-- The parts of a run of which items are exempted: number, first and last ordinal. Parameter: run bigint.
SELECT p.number, p.last - p.item_count + 1, p.last
FROM (
    SELECT number, item_count, (cursor ->> 'ordinal')::bigint AS last FROM ledger_manifestpart WHERE run_id = %(run)s
) p
WHERE EXISTS (
    SELECT FROM ledger_itemdisposition d
    WHERE d.run_id = %(run)s AND d.ordinal BETWEEN p.last - p.item_count + 1 AND p.last
)
