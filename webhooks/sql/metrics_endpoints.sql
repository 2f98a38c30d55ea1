-- Closed, open, disabled; and of those that are enabled: paused, failing. Secrets that sign now.
SELECT
    count(*) FILTER (WHERE disabled_at IS NULL AND circuit_step = 0), count(*) FILTER (WHERE disabled_at IS NULL AND circuit_step > 0),
    count(*) FILTER (WHERE disabled_at IS NOT NULL AND retired_at IS NULL),
    count(*) FILTER (WHERE disabled_at IS NULL AND paused_until > now()),
    count(*) FILTER (WHERE disabled_at IS NULL AND failing_since IS NOT NULL),
    (SELECT count(*) FROM webhooks_endpointsecret WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now()))
FROM webhooks_endpoint
