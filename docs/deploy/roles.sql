-- The database and its four roles, made once by an administrator of the server; `manage.py grants` says what each may do.
-- psql 15 or later, with OWNER_PASSWORD, WEB_PASSWORD, WORKER_PASSWORD and COMPACTION_PASSWORD in the environment.
\set ON_ERROR_STOP on
\getenv owner OWNER_PASSWORD
\getenv web WEB_PASSWORD
\getenv worker WORKER_PASSWORD
\getenv compaction COMPACTION_PASSWORD

SELECT format('CREATE ROLE %I LOGIN', name)
FROM unnest(ARRAY['cleanup_owner', 'cleanup_web', 'cleanup_worker', 'cleanup_compaction']) AS r (name)
WHERE name NOT IN (SELECT rolname FROM pg_roles) \gexec
ALTER ROLE cleanup_owner PASSWORD :'owner';
ALTER ROLE cleanup_web PASSWORD :'web';
ALTER ROLE cleanup_worker PASSWORD :'worker';
ALTER ROLE cleanup_compaction PASSWORD :'compaction';

-- A page that takes longer than this is given up, whatever it waits for. Exports set a limit of their own.
ALTER ROLE cleanup_web SET statement_timeout = '30s';
GRANT pg_read_all_stats TO cleanup_web, cleanup_worker;  -- to tell of old snapshots: what other sessions do

SELECT 'CREATE DATABASE cleanup OWNER cleanup_owner'
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = 'cleanup') \gexec
