-- attack: stop the engine with locks
-- attacker: mallory, an author, and app, a role without rights, with advisory locks and LOCK TABLE
-- must not happen: a lock on a table of the engine is granted; alice's automation waits for an advisory lock
\i :attack_lib
\c attack mallory
SELECT attack.refused(format('LOCK TABLE %s IN ACCESS SHARE MODE', t), '42501')
  FROM unnest('{automation_internal.event,automation_internal.automation,automation_internal.router_cursor,automation_internal.dispatch,automation_internal.log}'::text[]) AS t;
SELECT attack.refused(format('LOCK TABLE %s IN ROW EXCLUSIVE MODE', t), '42501') FROM unnest('{automation.runs,automation.automations}'::text[]) AS t;
\c attack app
SELECT attack.refused('LOCK TABLE automation_internal.event', '42501');
-- every advisory lock that the engine could take by a small number or by the oid of something
SELECT count(pg_try_advisory_lock(n)) AS taken FROM generate_series(0, 2000) AS n;
SELECT count(pg_try_advisory_lock(0, n)) AS taken FROM generate_series(0, 500) AS n;
\! psql -X -q -d "host=$PGHOST port=$PGPORT dbname=attack user=app" -c "SELECT count(pg_try_advisory_lock(n)) FROM generate_series(0, 2000) AS n; SELECT pg_sleep(60)" >/dev/null 2>&1 &
\c attack postgres
SELECT attack.wait_for($$SELECT EXISTS (SELECT FROM pg_stat_activity WHERE usename = 'app' AND wait_event = 'PgSleep')$$);
\c attack alice
CREATE TABLE alice.effect (n int);
SELECT automation.define('alices', trigger => automation.on_event('alice.calls'), mode => 'single', entity_lock => true,
    steps => ARRAY[automation.sql($$ INSERT INTO alice.effect VALUES ({{ payload.n }}) $$)]) IS NOT NULL AS defined;
SELECT automation.emit('alice.calls', '{"n": 1}') IS NOT NULL AS emitted;
SELECT attack.wait_for('SELECT EXISTS (SELECT FROM alice.effect)');
SELECT attack.held(true, 'alice''s run is done while app holds 2000 advisory locks');
\c attack postgres
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'app';
