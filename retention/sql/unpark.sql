-- Give back to the scans a chunk of what one released hold has parked. Parameter: chunk int. Returns whether there was such a hold.
--
-- Both reads say that a hold lies between itself and itself, and order by it: so the index `parked` alone gives their order. Asked
-- for equality in the order of ids, the planner walks the whole catalogue by its key where it knows little of what is parked.
-- Within one hold, versions are locked in the order of their ids, as everywhere.
WITH released AS MATERIALIZED (
    SELECT h.id FROM retention_legalhold h
    CROSS JOIN LATERAL (
        SELECT FROM retention_objectversion v
        WHERE v.parked_by_id IS NOT NULL AND v.parked_by_id >= h.id AND v.parked_by_id <= h.id
        ORDER BY v.parked_by_id, v.id LIMIT 1
    ) has
    WHERE h.released_at IS NOT NULL
    LIMIT 1
),
chunk AS MATERIALIZED (
    SELECT parked.id FROM released r
    CROSS JOIN LATERAL (
        SELECT v.id FROM retention_objectversion v
        WHERE v.parked_by_id IS NOT NULL AND v.parked_by_id >= r.id AND v.parked_by_id <= r.id
        ORDER BY v.parked_by_id, v.id LIMIT %(chunk)s FOR NO KEY UPDATE
    ) parked
),
given_back AS (
    UPDATE retention_objectversion v SET parked_by_id = NULL FROM chunk
    WHERE v.id = chunk.id AND v.id = ANY (ARRAY(SELECT id FROM chunk)) -- said twice: the index is probed, never walked
)
SELECT EXISTS (SELECT FROM released)
