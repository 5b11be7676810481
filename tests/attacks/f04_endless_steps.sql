-- attack: stop the automations of all owners with steps that never end
-- attacker: mallory, an author, with twice as many endless runs as there are executors
-- must not happen: an automation of alice does not run
\i :attack_lib
\c attack mallory
SELECT automation.define('m-hold', trigger => automation.on_event('m.hold'), steps => ARRAY[automation.sql('SELECT pg_sleep(3600)')]);
SELECT automation.start_run('m-hold') FROM generate_series(1, 8);
SELECT attack.wait_for($$ SELECT count(*) = 4 FROM pg_stat_activity WHERE datname = 'attack' AND wait_event = 'PgSleep'
                             AND backend_type = 'automation_engine executor' $$);
\c attack alice
CREATE TABLE alice.got (n int);
SELECT automation.define('a-work', trigger => automation.on_event('a.work'), steps => ARRAY[
    automation.sql($$ INSERT INTO alice.got VALUES (({{ payload.n }})::int) $$)]);
SELECT automation.emit('a.work', jsonb_build_object('n', n)) FROM generate_series(1, 5) AS n;
SELECT attack.wait_for('SELECT count(*) = 5 FROM alice.got');
SELECT attack.held(count(*) = 5, 'the five runs of alice were executed') FROM alice.got;
SELECT attack.wait_for($$ SELECT status = 'starved' FROM automation.status() WHERE item = 'executors' $$);
SELECT attack.held(detail NOT LIKE '%mallory%', 'status() tells alice no name: ' || detail)
  FROM automation.status() WHERE item = 'executors';
\c attack postgres
SELECT attack.held(detail LIKE '%"mallory" (4)%', 'status() tells a superuser who holds the executors: ' || detail)
  FROM automation.status() WHERE item = 'executors';
SELECT automation.stop_workers();
