-- attack: end retention by filling days that are yet to come
-- attacker: mallory, an author, who sets the clock of her session and commits what drain() did
-- must not happen: a row of the history lies in the default partition, or a day does not get its partitions
\i :attack_lib
\c attack mallory
SELECT automation.define('m-clock', trigger => automation.on_call(), steps => ARRAY[automation.set('{"a": 1}')]);
BEGIN;
SELECT automation.set_clock(now() + interval '1 day') IS NOT NULL;
SELECT automation.start_run('m-clock');
SELECT automation.drain();
COMMIT;
BEGIN;
SELECT automation.set_clock('9999-12-01') IS NOT NULL;
SELECT automation.start_run('m-clock');
SELECT automation.drain();
COMMIT;
\c attack postgres
SELECT attack.wait_for('SELECT count(*) = 2 FROM automation.runs WHERE status = ''completed''');
SELECT attack.held(count(*) = 0, 'no run is in the default partition') FROM automation_internal.run_history_default;
SELECT attack.held(count(*) = 0, 'no event is in the default partition') FROM automation_internal.event_default;
SELECT attack.held(bool_and(recorded_at BETWEEN now() - interval '1 hour' AND now()), 'runs are kept by the day on the wall')
  FROM automation_internal.run_history;
-- what an earlier version left there, or a clock on the wall that was ahead, does not stay in the way
BEGIN;
DO $$
DECLARE
    tomorrow text := 'run_history_d' || floor(extract(epoch FROM now() - timestamptz '2000-01-01 00:00+00') / 86400)::integer + 1;
BEGIN
    EXECUTE format('ALTER EXTENSION automation_engine DROP TABLE automation_internal.%I', tomorrow);
    EXECUTE format('DROP TABLE automation_internal.%I', tomorrow);
    UPDATE automation_internal.run_history SET recorded_at = now() + interval '1 day';
END $$;
SELECT attack.held(count(*) = 2, 'two rows stand in the way') FROM automation_internal.run_history_default;
SELECT automation.sweep() IS NOT NULL;
SELECT attack.held(count(*) = 0, 'they were moved to the partition of their day') FROM automation_internal.run_history_default;
SELECT attack.held(count(*) = 2, 'and are still there') FROM automation_internal.run_history;
ROLLBACK;
