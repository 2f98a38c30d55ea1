-- Write receipts, and apart from them the clear names behind their commitments. One array for each column.
WITH receipt AS (
    INSERT INTO ledger_receipt (
        command_id, command_key, tenant_id, run_id, outcome, event_id, target_count, bytes, body, digest, issued_at
    )
    SELECT
        u.command, u.key, %(tenant)s, u.run, u.outcome, u.event_id, u.targets, u.bytes, u.body, u.digest, %(now)s
    FROM unnest(
        %(command)s::bigint[], %(key)s::text[], %(run)s::bigint[], %(outcome)s::text[], %(event_id)s::text[],
        %(targets)s::int[], %(bytes)s::bigint[], %(body)s::bytea[], %(digest)s::bytea[]
    ) AS u (command, key, run, outcome, event_id, targets, bytes, body, digest)
    RETURNING id, command_id
)
INSERT INTO ledger_receiptlocator (receipt_id, ordinal, bucket, key, version_id)
SELECT receipt.id, u.ordinal, u.bucket, u.key, u.version_id
FROM unnest(
    %(of)s::bigint[], %(ordinal)s::int[], %(bucket)s::text[], %(object_key)s::text[], %(version_id)s::text[]
) AS u (command_id, ordinal, bucket, key, version_id)
JOIN receipt ON receipt.command_id = u.command_id
