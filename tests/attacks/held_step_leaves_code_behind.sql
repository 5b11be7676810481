-- attack: leave code in the session that later runs or the commit execute
-- attacker: mallory, author of the steps
-- must not happen: code of a step runs as another role, or in the next run
\i :attack_lib
\c attack mallory
CREATE TABLE mallory.hostile (name text, statement text, expected text);
CREATE TABLE mallory.canary (what text, by_role text);
CREATE FUNCTION mallory.seen(what text) RETURNS int LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO mallory.canary VALUES (what, current_user || '/' || session_user); RETURN 1; END $$;
CREATE TABLE mallory.watched (n int);
CREATE FUNCTION mallory.on_commit() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM mallory.seen('deferred'); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON mallory.watched DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION mallory.on_commit();
INSERT INTO mallory.hostile VALUES
    ('deferred', $h$ INSERT INTO mallory.watched VALUES (1) $h$, 'completed'),
    ('hold', $h$ DECLARE c CURSOR WITH HOLD FOR SELECT mallory.seen('cursor') $h$, 'completed'),
    ('prepare-statement', $h$ PREPARE p AS SELECT 1 $h$, 'completed'),
    ('listen', $h$ LISTEN attack $h$, '0A000'),
    ('temp-shadow', $h$ CREATE TEMP TABLE dispatch AS SELECT 1 AS owner $h$, 'completed'),
    ('temp-catalog', $h$ CREATE TEMP VIEW pg_class AS SELECT mallory.seen('view') AS oid $h$, 'completed'),
    ('temp-function', $h$ CREATE FUNCTION pg_temp.now() RETURNS timestamptz LANGUAGE sql AS $f$ SELECT mallory.seen('now')::text::timestamptz $f$ $h$, 'completed');
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
SELECT attack.held(bool_and(by_role = 'mallory/mallory'), 'code of hers ran as mallory only: ' || string_agg(DISTINCT what || ' ' || by_role, ', '))
  FROM mallory.canary;
SELECT attack.held(count(*) = 0, 'no view or function in pg_temp was called') FROM mallory.canary WHERE what IN ('view', 'now');
