-- A chunk of a run's receipts up to the end of the run, in order. Parameters: run, after bigint (a receipt's id), until
-- timestamptz, limit int. What a receipt says of its revision stands at the end of its command key, and of its trigger in
-- its body: no text of another member can hold these quotes unescaped.
SELECT
    id, outcome, reverse(split_part(reverse(command_key), ':', 1)), target_count, bytes, digest, issued_at,
    split_part(split_part(convert_from(body, 'UTF8'), '"trigger_at":"', 2), '"', 1)
FROM ledger_receipt
WHERE run_id = %(run)s AND id > %(after)s AND issued_at <= %(until)s
ORDER BY id LIMIT %(limit)s
