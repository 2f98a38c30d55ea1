-- Slots of schedules in the last `since` seconds that were missed, and when the newest of them was. Parameters: codes text[] (of
-- tenants; empty: all), since. By slot_once, policy by policy.
SELECT count(*), max(s.scheduled_for)
FROM retention_retentionpolicy p
JOIN retention_tenant t ON t.id = p.tenant_id AND (%(codes)s::text[] = '{}' OR t.code = ANY (%(codes)s::text[]))
JOIN ledger_scheduleslot s
    ON s.policy_id = p.id AND s.scheduled_for > now() - %(since)s * interval '1 s' AND s.outcome = 'missed'
