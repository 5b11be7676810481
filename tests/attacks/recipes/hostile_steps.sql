-- Runs each statement of mallory.hostile (name, statement, expected) three times as a step of mallory's. Each run must end with
-- the expected SQLSTATE, or as "completed", and leave nothing in the session of later runs.
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
