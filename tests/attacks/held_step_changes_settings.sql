-- attack: leave settings behind for the next run, or switch protections off
-- attacker: mallory, author of the steps
-- must not happen: a setting of the server is changed, or one of the session outlives the step
\i :attack_lib
\c attack mallory
CREATE TABLE mallory.hostile (name text, statement text, expected text);
INSERT INTO mallory.hostile VALUES
    ('work-mem', $h$ SET work_mem = '64kB' $h$, 'completed'),
    ('timeout', $h$ SET SESSION statement_timeout = 1 $h$, 'completed'),
    ('config', $h$ SELECT set_config('work_mem', '64kB', false) $h$, 'completed'),
    ('read-only', $h$ SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY $h$, 'completed'),
    ('replica', $h$ SET session_replication_role = replica $h$, '42501'),
    ('capture', $h$ SET automation_engine.capture = off $h$, '42501'),
    ('enabled', $h$ SET automation_engine.enabled = off $h$, '55P02'),
    ('step-timeout', $h$ SET automation_engine.step_timeout = 0 $h$, '55P02'),
    ('superusers', $h$ SET automation_engine.allow_superuser_automations = on $h$, '55P02'),
    ('alter-system', $h$ ALTER SYSTEM SET automation_engine.enabled = off $h$, '%'),
    ('discard', $h$ DISCARD ALL $h$, '%'),
    ('reset-all', $h$ RESET ALL $h$, 'completed');
SELECT automation.define(name, trigger => automation.on_event('m.hostile'), breaker => 0,
                         steps => ARRAY[automation.sql(statement)]) FROM mallory.hostile;
-- each three times: the second and third find what the first may have left in the session
SELECT automation.start_run(name) FROM mallory.hostile, generate_series(1, 3);
SELECT attack.wait_for($$ SELECT count(*) = 3 * (SELECT count(*) FROM mallory.hostile) FROM automation.runs
                           WHERE status IN ('completed', 'failed') $$);
SELECT attack.held(count(*) = 3 AND bool_and(coalesce(r.sqlstate, 'completed') LIKE h.expected),
                   h.name || ': ' || string_agg(DISTINCT coalesce(r.sqlstate || ' ' || r.message, 'completed'), ', '))
  FROM mallory.hostile AS h LEFT JOIN automation.runs AS r ON r.automation = h.name
 GROUP BY h.name, h.expected;
-- the session of the next run is as a new one
CREATE TABLE mallory.probe (finding text);
SELECT automation.define('m-probe', trigger => automation.on_event('m.probe'), steps => ARRAY[automation.sql($$
    INSERT INTO mallory.probe
    SELECT concat_ws(' ', current_user, session_user, current_setting('role'), current_setting('is_superuser'),
                     current_setting('session_replication_role'), current_setting('work_mem'),
                     current_setting('statement_timeout'), current_setting('default_transaction_read_only'),
                     (SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()),
                     (SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_cursors WHERE is_holdable),
                     (SELECT count(*) FROM pg_listening_channels()),
                     (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'
                                                      AND objsubid IN (1, 2))) $$)]);
SELECT automation.emit('m.probe') FROM generate_series(1, 20);
SELECT attack.wait_for('SELECT count(*) = 20 FROM mallory.probe');
SELECT attack.held(bool_and(finding = 'mallory mallory none off origin 4MB 0 off 0 0 0 0 0'),
                   'the sessions of later runs are clean: ' || min(finding)) FROM mallory.probe;
\c attack postgres
SELECT attack.held(NOT rolsuper, 'mallory is no superuser') FROM pg_roles WHERE rolname = 'mallory';
SELECT attack.held(current_setting('automation_engine.enabled') = 'on', 'the engine is on');
SELECT attack.held(status = 'failed', 'ALTER SYSTEM was refused') FROM automation.runs WHERE automation = 'alter-system';
