-- eligible_since = cut-off(trigger) + period, in UTC. retention/duedate.py is the same rule for Python.
CREATE FUNCTION due_at(trigger_at timestamptz, period interval, cutoff text) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN trigger_at IS NOT NULL THEN least(timestamptz '9999-12-31 00:00:00+00', (
        CASE cutoff
            WHEN 'month' THEN date_trunc('month', trigger_at AT TIME ZONE 'UTC') + interval '1 month'
            WHEN 'quarter' THEN date_trunc('quarter', trigger_at AT TIME ZONE 'UTC') + interval '3 months'
            WHEN 'year' THEN date_trunc('year', trigger_at AT TIME ZONE 'UTC') + interval '1 year'
            ELSE trigger_at AT TIME ZONE 'UTC'
        END + period
    ) AT TIME ZONE 'UTC') END
$$;
