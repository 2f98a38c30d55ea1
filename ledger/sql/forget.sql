-- Delete the locators of old receipts, of the next chunk of commands that have any.
-- Parameters: older_than (seconds), after (the last command read), limit.
WITH chunk AS MATERIALIZED (
    SELECT DISTINCT command_id FROM ledger_receiptlocator
    WHERE command_id > %(after)s ORDER BY command_id LIMIT %(limit)s
),
old AS MATERIALIZED (
    SELECT r.command_id FROM chunk JOIN ledger_receipt r ON r.command_id = chunk.command_id
    WHERE r.issued_at < now() - %(older_than)s * interval '1 s'
),
forgotten AS (
    DELETE FROM ledger_receiptlocator l USING old WHERE l.command_id = old.command_id
)
SELECT (SELECT count(*) FROM chunk), (SELECT count(*) FROM old), (SELECT max(command_id) FROM chunk)
