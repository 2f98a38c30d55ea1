-- Where one page of observations waits for its upsert. Lives as long as the session, empty between transactions.
CREATE TEMPORARY TABLE IF NOT EXISTS catalogue_page (
    key text COLLATE "C" NOT NULL,
    version_id text COLLATE "C" NOT NULL,
    incarnation text COLLATE "C" NOT NULL,
    etag text NOT NULL,
    size bigint NOT NULL,
    stored_at timestamptz NOT NULL,
    is_latest boolean,
    is_delete_marker boolean NOT NULL,
    storage_class text NOT NULL,
    tenant_id bigint,
    asset text NOT NULL,
    series text NOT NULL,
    retention_class text NOT NULL,
    role text NOT NULL,
    original_bucket_id bigint,
    original_key text NOT NULL,
    original_version_id text NOT NULL,
    dated_at timestamptz,
    stated text[] NOT NULL
) ON COMMIT DELETE ROWS
