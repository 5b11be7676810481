-- attack: put functions and operators of one's own before those of the engine's statements
-- attacker: mallory, author of the steps
-- must not happen: a function of the author's runs with the engine's rights
\i :attack_lib
\c attack mallory
CREATE TABLE mallory.hostile (name text, statement text, expected text);
CREATE TABLE mallory.canary (what text, by_role text);
CREATE FUNCTION mallory.seen(what text) RETURNS int LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO mallory.canary VALUES (what, current_user || '/' || session_user); RETURN 1; END $$;
CREATE FUNCTION mallory.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS
    $$ BEGIN PERFORM mallory.seen('clock_timestamp'); RETURN pg_catalog.clock_timestamp(); END $$;
CREATE FUNCTION mallory.now() RETURNS timestamptz LANGUAGE plpgsql AS
    $$ BEGIN PERFORM mallory.seen('now'); RETURN pg_catalog.now(); END $$;
CREATE FUNCTION mallory.unnest(bigint[]) RETURNS SETOF bigint LANGUAGE plpgsql AS
    $$ BEGIN PERFORM mallory.seen('unnest'); RETURN QUERY SELECT pg_catalog.unnest($1); END $$;
CREATE FUNCTION mallory.equal(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS
    $$ BEGIN PERFORM mallory.seen('='); RETURN pg_catalog.int8eq($1, $2); END $$;
CREATE OPERATOR mallory.= (FUNCTION = mallory.equal, LEFTARG = bigint, RIGHTARG = bigint);
CREATE FUNCTION mallory.equal(oid, oid) RETURNS boolean LANGUAGE plpgsql AS
    $$ BEGIN PERFORM mallory.seen('='); RETURN pg_catalog.oideq($1, $2); END $$;
CREATE OPERATOR mallory.= (FUNCTION = mallory.equal, LEFTARG = oid, RIGHTARG = oid);
ALTER ROLE mallory SET search_path = mallory, pg_catalog;
INSERT INTO mallory.hostile VALUES
    ('path', $h$ SET search_path = mallory, pg_temp, pg_catalog $h$, 'completed'),
    ('path-config', $h$ SELECT set_config('search_path', 'mallory, pg_catalog', false) $h$, 'completed'),
    ('use', $h$ SELECT mallory.seen('step') $h$, 'completed');
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
SELECT attack.held(bool_and(by_role = 'mallory/mallory'), 'functions of hers ran as mallory only: ' || string_agg(DISTINCT what || ' ' || by_role, ', '))
  FROM mallory.canary;
