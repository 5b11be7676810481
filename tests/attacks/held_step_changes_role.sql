-- attack: become another role in a step
-- attacker: mallory, author of the steps
-- must not happen: a step runs as a role other than its owner, or leaves the next run as one
\i :attack_lib
\c attack mallory
CREATE TABLE mallory.hostile (name text, statement text, expected text);
INSERT INTO mallory.hostile VALUES
    ('reset-role', $h$ DO $do$ BEGIN RESET ROLE; ALTER ROLE mallory SUPERUSER; END $do$ $h$, '42501'),
    ('set-role', $h$ SET ROLE postgres $h$, '42501'),
    ('set-local-role', $h$ SET LOCAL ROLE alice $h$, '42501'),
    ('set-session', $h$ SET SESSION AUTHORIZATION postgres $h$, '42501'),
    ('reset-session', $h$ DO $do$ BEGIN RESET SESSION AUTHORIZATION; ALTER ROLE mallory SUPERUSER; END $do$ $h$, '42501'),
    ('config-role', $h$ SELECT set_config('role', 'postgres', false) $h$, '42501'),
    ('config-session', $h$ SELECT set_config('session_authorization', 'postgres', false) $h$, '42501'),
    ('alter-role', $h$ ALTER ROLE mallory SUPERUSER $h$, '42501'),
    ('create-role', $h$ CREATE ROLE mallory_too SUPERUSER $h$, '42501'),
    ('grant-role', $h$ GRANT pg_read_server_files TO mallory $h$, '42501');
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
SELECT attack.held(count(*) = 0, 'no role was made') FROM pg_roles WHERE rolname = 'mallory_too';
