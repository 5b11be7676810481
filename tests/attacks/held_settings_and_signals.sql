-- attack: switch the engine off, or look over the shoulder of its workers
-- attacker: mallory, an author; app with pg_signal_backend; viewer with pg_monitor
-- must not happen: a role without the right changes a setting, ends the conductor, or reads what a worker runs
\i :attack_lib
GRANT pg_signal_backend TO app;
GRANT pg_monitor TO viewer;
\c attack mallory
SELECT attack.refused(format('SET %s = %L', name, setting), '%')
  FROM pg_settings
 WHERE name LIKE 'automation\_engine.%' AND name NOT IN ('automation_engine.actor', 'automation_engine.clock');
SELECT attack.refused(format('ALTER ROLE mallory SET automation_engine.%s = off', name), '42501') FROM unnest('{capture}'::text[]) AS name;
SELECT attack.refused('SELECT automation.stop_workers()', '42501');
SELECT attack.refused('SELECT automation.sweep()', '42501');
SELECT attack.refused('SET automation_engine.unknown = 1', '%');
SELECT automation.define('m-slow', trigger => automation.on_call(), steps => ARRAY[automation.sql($$ SELECT 'canary-activity', pg_advisory_xact_lock(77) $$)]);
\c attack postgres
-- while this session holds the lock, the step of mallory's run waits for it
SELECT pg_advisory_lock(77);
\! psql -X -q -d "host=$PGHOST port=$PGPORT dbname=attack user=mallory" -c "SELECT automation.start_run('m-slow')" >/dev/null
SELECT attack.wait_for($$ SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'automation_engine executor' AND wait_event = 'advisory') $$);
SELECT attack.held(count(*) >= 3 AND bool_and(coalesce(query, '') = '' OR query ~ '^automation "[^"]+" run \d+ step "[^"]+"$'),
                   'no worker shows a statement, only names, not even to a superuser')
  FROM pg_stat_activity WHERE backend_type LIKE 'automation_engine%';
SELECT attack.held(count(*) = 0, 'and none shows a value') FROM pg_stat_activity AS s WHERE s::text LIKE '%canary-' || 'activity%' AND pid <> pg_backend_pid();
SELECT pid AS conductor FROM pg_stat_activity WHERE backend_type = 'automation_engine conductor' AND datname = 'attack' \gset
SELECT pid AS launcher FROM pg_stat_activity WHERE backend_type = 'automation_engine launcher' \gset
\! psql -X -q -d "host=$PGHOST port=$PGPORT dbname=attack user=viewer" -c "SELECT attack.held(count(*) = 0, 'nor to pg_monitor') FROM pg_stat_activity AS s WHERE s::text LIKE '%canary-' || 'activity%' AND pid <> pg_backend_pid()" 2>&1
SELECT set_config('attack.conductor', :'conductor', false), set_config('attack.launcher', :'launcher', false);
SET ROLE app;
SELECT attack.refused(format('SELECT %s(%s)', f, pid), '42501')
  FROM unnest('{pg_terminate_backend,pg_cancel_backend}'::text[]) AS f, unnest(ARRAY[current_setting('attack.conductor'), current_setting('attack.launcher')]) AS pid;
RESET ROLE;
SELECT pg_advisory_unlock(77);
SELECT attack.wait_for($$ SELECT EXISTS (SELECT FROM automation.runs WHERE automation = 'm-slow' AND status = 'completed') $$);
SELECT attack.held(pid = :conductor, 'the conductor is the same') FROM pg_stat_activity WHERE backend_type = 'automation_engine conductor' AND datname = 'attack';
