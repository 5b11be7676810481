-- attack: stop all routing by a transaction that stays open
-- attacker: op_b after start_run() and cancel_run(), mallory after drain()
-- must not happen: the events of other owners wait until those transactions end
\i :attack_lib
SELECT automation.define('op', run_as => 'op_b', trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]);
SET SESSION AUTHORIZATION mallory;
CREATE TABLE mallory.job (id int PRIMARY KEY);
CREATE TABLE mallory.effect (id int);
SELECT automation.watch_table('mallory.job');
SELECT automation.define('m-job', trigger => automation.on_created('job'),
    steps => ARRAY[automation.sql('INSERT INTO mallory.effect VALUES ({{ new.id }})')]);
SET SESSION AUTHORIZATION alice;
CREATE TABLE alice.item (id int PRIMARY KEY);
CREATE TABLE alice.effect (id int);
SELECT automation.watch_table('alice.item');
SELECT automation.define('a-item', trigger => automation.on_created('item'),
    steps => ARRAY[automation.sql('INSERT INTO alice.effect VALUES ({{ new.id }})')]);
RESET SESSION AUTHORIZATION;
\! psql -X -q -d "host=$PGHOST port=$PGPORT dbname=attack user=op_b application_name=held_open" -c "BEGIN; SELECT automation.cancel_run(automation.start_run('op')); SELECT pg_sleep(600)" >/dev/null 2>&1 &
\! psql -X -q -d "host=$PGHOST port=$PGPORT dbname=attack user=mallory application_name=held_open" -c "BEGIN; INSERT INTO mallory.job VALUES (1); SELECT automation.drain(); SELECT count(*) FROM mallory.effect; SELECT pg_sleep(600)" >/dev/null 2>&1 &
SELECT attack.wait_for($$ SELECT count(*) = 2 FROM pg_stat_activity WHERE application_name = 'held_open' AND wait_event = 'PgSleep' $$);
INSERT INTO alice.item VALUES (1), (2);
SELECT attack.wait_for('SELECT count(*) = 2 FROM alice.effect', 20);
SELECT attack.held(count(*) = 2, 'both transactions are still open')
  FROM pg_stat_activity WHERE application_name = 'held_open' AND wait_event = 'PgSleep';
SELECT attack.held(count(*) = 0, 'nothing of mallory''s is committed') FROM mallory.job;
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'held_open';
