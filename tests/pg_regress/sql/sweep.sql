-- The safety net: what the engine lost, or could not notice, is found by sweep() and counted.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE SCHEMA sweep;
SET search_path = sweep;
CREATE TABLE lamp (id int PRIMARY KEY, lit boolean NOT NULL);
CREATE TABLE effect (note text NOT NULL);
SELECT automation.watch_table('lamp', kind => 'sweep_lamp');
INSERT INTO lamp SELECT n, false FROM generate_series(1, 3) AS n;
CREATE PROCEDURE work() LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. 3 LOOP
        PERFORM automation.route(), automation.run_timers(), automation.dispatch();
    END LOOP;
END $$;
CREATE FUNCTION rescued() RETURNS bigint LANGUAGE sql
    RETURN (SELECT status::bigint FROM automation.status() WHERE item = 'rescued_wakeups');
CREATE VIEW told AS SELECT code, message FROM automation.log WHERE code = 'rescued_wakeup' ORDER BY message;

-- nothing is wrong: nothing is found
SELECT name FROM automation.define('sweep_lamp', trigger => automation.on_call(), steps => ARRAY[
    automation.wait_until('state.sweep_lamp["1"].lit'),
    automation.sql('INSERT INTO sweep.effect VALUES (''lit'')')]);
SELECT name FROM automation.define('sweep_delay', trigger => automation.on_call(), timeout => '2 hours', steps => ARRAY[
    automation.delay('1 hour'), automation.sql('INSERT INTO sweep.effect VALUES (''an hour later'')')]);
SELECT name FROM automation.define('sweep_signal', trigger => automation.on_call(), steps => ARRAY[
    automation.wait_signal('sweep_go'), automation.sql('INSERT INTO sweep.effect VALUES (''signalled'')')]);
SELECT name FROM automation.define('sweep_event', trigger => automation.on_call(), steps => ARRAY[
    automation.wait_for_event('sweep.news', timeout => '1 hour'),
    automation.sql('INSERT INTO sweep.effect VALUES (''news'')')]);
SELECT count(automation.start_run(name)) FROM automation.automations WHERE name LIKE 'sweep%';
CALL work();
DELETE FROM automation_internal.timer WHERE reason = 'a';
SELECT automation.sweep();
SELECT reason, count(*) FROM automation.dispatches GROUP BY reason;
CALL work();
SELECT automation, waiting_for FROM automation.waiting ORDER BY automation;
SELECT rescued();

-- a change that is on its way is no rescue, whoever comes first
SELECT automation.sweep();
UPDATE lamp SET lit = true WHERE id = 1;
SELECT automation.dispatch();
SELECT * FROM effect;
SELECT automation.signal('sweep_go') IS NOT NULL AS sent;
SELECT automation.sweep();
SELECT automation.route();
CALL work();
SELECT * FROM effect ORDER BY note;
SELECT rescued();
TRUNCATE effect;

-- a change that was not captured (R000-28)
SELECT automation.start_run('sweep_lamp') > 0 AS started;
UPDATE lamp SET lit = false WHERE id = 1;
CALL work();
ALTER TABLE lamp DISABLE TRIGGER USER;
UPDATE lamp SET lit = true WHERE id = 1;
ALTER TABLE lamp ENABLE TRIGGER USER;
CALL work();
SELECT * FROM effect;
DELETE FROM automation_internal.timer WHERE reason = 'a';
SELECT automation.sweep();
CALL work();
SELECT * FROM effect;
SELECT rescued();
SELECT * FROM told;
TRUNCATE effect;

-- timers, the run's own deadline and the wake-index, lost (R000-28, R003-34)
SELECT count(*) FROM automation_internal.timer;
DELETE FROM automation_internal.timer;
DELETE FROM automation_internal.wake_index;
SELECT automation.sweep();
CALL work();
SELECT reason, count(*) FROM automation_internal.timer GROUP BY reason ORDER BY reason;
SELECT source, kind FROM automation_internal.wake_index ORDER BY source, kind;
SELECT rescued();
SELECT * FROM told;
SELECT automation.sweep();
CALL work();
SELECT rescued();
BEGIN;
SELECT automation.advance('61 minutes') IS NOT NULL AS advanced;
SELECT automation.drain();
SELECT * FROM effect ORDER BY note;
ROLLBACK;

-- a lane that is looked at in vain beside one that moves is looked at again
SELECT name FROM automation.define('sweep_lanes', trigger => automation.on_call(), steps => ARRAY[
    automation.parallel(ARRAY[automation.delay('60 seconds'), automation.wait_until('minute(now()) == 77')])]);
BEGIN;
SELECT automation.start_run('sweep_lanes') > 0 AS started;
SELECT automation.drain();
SELECT automation.advance('61 seconds') IS NOT NULL AS advanced;
SELECT automation.drain() > 0 AS ran;
SELECT w.step, w.waiting_for, array_agg(t.reason ORDER BY t.reason) AS timers
  FROM automation.waiting AS w
  LEFT JOIN automation_internal.timer AS t ON t.run_id = w.run_id
 WHERE w.automation = 'sweep_lanes'
 GROUP BY w.step, w.waiting_for;
ROLLBACK;

SELECT count(automation.drop_automation(name, runs => 'cancel'))
  FROM automation.automations WHERE name LIKE 'sweep%';
SELECT count(*) FROM automation_internal.timer;
SELECT count(*) FROM automation_internal.wake_index;
SELECT automation.unwatch_table('lamp');
DROP SCHEMA sweep CASCADE;
DELETE FROM automation_internal.log WHERE code = 'rescued_wakeup';
