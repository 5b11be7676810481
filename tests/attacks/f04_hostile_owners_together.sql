-- attack: several owners together hold every executor, and every place that is given beside them
-- attacker: mallory, owner_a and owner_b, each with endless runs
-- must not happen: an automation of alice does not run
\i :attack_lib
\c attack mallory
SELECT automation.define('m-hold', trigger => automation.on_event('m.hold'), steps => ARRAY[automation.sql('SELECT pg_sleep(3600)')]);
SELECT automation.start_run('m-hold') FROM generate_series(1, 8);
SELECT attack.wait_for($$ SELECT count(*) = 4 FROM pg_stat_activity WHERE datname = 'attack' AND wait_event = 'PgSleep'
                             AND backend_type = 'automation_engine executor' $$);
\c attack owner_a
SELECT automation.define('a-hold', trigger => automation.on_event('a.hold'), steps => ARRAY[automation.sql('SELECT pg_sleep(3600)')]);
SELECT automation.start_run('a-hold') FROM generate_series(1, 8);
\c attack owner_b
SELECT automation.define('b-hold', trigger => automation.on_event('b.hold'), steps => ARRAY[automation.sql('SELECT pg_sleep(3600)')]);
SELECT automation.start_run('b-hold') FROM generate_series(1, 8);
\c attack postgres
SELECT attack.wait_for($$ SELECT count(DISTINCT usename) = 3 FROM pg_stat_activity WHERE datname = 'attack'
                             AND wait_event = 'PgSleep' AND backend_type = 'automation_engine executor' $$);
\c attack alice
CREATE TABLE alice.got (n int);
SELECT automation.define('a-work', trigger => automation.on_event('a.work'), steps => ARRAY[
    automation.sql($$ INSERT INTO alice.got VALUES (({{ payload.n }})::int) $$)]);
SELECT automation.emit('a.work', jsonb_build_object('n', n)) FROM generate_series(1, 5) AS n;
SELECT attack.wait_for('SELECT count(*) = 5 FROM alice.got');
SELECT attack.held(count(*) = 5, 'the five runs of alice were executed') FROM alice.got;
\c attack postgres
SELECT attack.held(count(*) <= 13, 'the processes do not pile up: ' || count(*)) FROM pg_stat_activity
 WHERE datname = 'attack' AND backend_type = 'automation_engine executor';
SELECT automation.stop_workers();
