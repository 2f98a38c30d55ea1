-- Room on each page, so that a claim's update stays on it and touches no index; dead rows are cleared away early.
ALTER TABLE webhooks_delivery SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01);
ALTER TABLE webhooks_lane SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01);
