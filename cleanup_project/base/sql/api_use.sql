-- One row for each token, so that nothing has to be cleared away. A limit that is one too generous or too strict at the turn
-- of a minute harms nobody; a count that two processes both missed would.
WITH clock AS (SELECT extract(epoch FROM statement_timestamp()) AS seconds)
INSERT INTO base_apiuse AS use (token_id, minute, reads, writes)
SELECT %(token)s, floor(seconds / 60)::bigint, (NOT %(writing)s)::int, %(writing)s::int FROM clock
ON CONFLICT (token_id) DO UPDATE SET
    minute = EXCLUDED.minute,
    reads = EXCLUDED.reads + CASE WHEN use.minute = EXCLUDED.minute THEN use.reads ELSE 0 END,
    writes = EXCLUDED.writes + CASE WHEN use.minute = EXCLUDED.minute THEN use.writes ELSE 0 END
RETURNING reads, writes, 60 - floor(extract(epoch FROM statement_timestamp()))::bigint %% 60
