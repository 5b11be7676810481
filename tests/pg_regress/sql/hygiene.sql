-- A step that tries to leave the transaction, its role or something in the session behind: the next run, and the session
-- that drives the queue by hand, see nothing of it.
\set SHOW_CONTEXT never
CREATE ROLE regress_h_owner LOGIN;
CREATE SCHEMA hyg AUTHORIZATION regress_h_owner;
SET search_path = hyg, public;
SET TimeZone = 'Europe/Oslo';
SET ROLE regress_h_owner;
CREATE TABLE probe (n serial, what text, role name DEFAULT current_user);
RESET ROLE;
-- what a run sees of its session
SELECT status FROM automation.define('h-probe', trigger => automation.on_event('h.probe'), run_as => 'regress_h_owner', steps => ARRAY[
    automation.sql($$ INSERT INTO probe (what)
        SELECT format('work_mem %s, path %s, temporary %s, advisory %s, prepared %s, held %s, listening %s, timezone %s',
                      current_setting('work_mem'), current_setting('search_path'), to_regclass('pg_temp.h_temp') IS NOT NULL,
                      (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objid = 42),
                      (SELECT count(*) FROM pg_prepared_statements WHERE name = 'h_statement'),
                      (SELECT count(*) FROM pg_cursors WHERE is_holdable),
                      (SELECT count(*) FROM pg_listening_channels() AS c WHERE c = 'h_channel'),
                      current_setting('TimeZone')) $$)]);
-- runs one step, then the probe; says how the step ended and what is left of it
CREATE FUNCTION attempt(step text) RETURNS TABLE (outcome text, then_seen text, as_role name) LANGUAGE plpgsql AS $$
DECLARE
    tried bigint;
BEGIN
    PERFORM automation.define('h-try', trigger => automation.on_event('h.try'), run_as => 'regress_h_owner', steps => ARRAY[automation.sql(step)]);
    PERFORM automation.emit('h.try');
    PERFORM automation.drain();
    PERFORM automation.emit('h.probe');
    PERFORM automation.drain();
    RETURN QUERY
    SELECT (SELECT concat_ws(' ', r.status, r.sqlstate, r.message) FROM automation.runs AS r WHERE r.automation = 'h-try' ORDER BY r.id DESC LIMIT 1),
           p.what, p.role FROM hyg.probe AS p ORDER BY p.n DESC LIMIT 1;
EXCEPTION WHEN OTHERS THEN
    RETURN QUERY SELECT 'not defined: ' || sqlerrm, NULL::text, NULL::name;
END $$;
\x on
SELECT * FROM attempt('SELECT 1');
-- transaction control
SELECT * FROM attempt('COMMIT');
SELECT * FROM attempt('ROLLBACK');
SELECT * FROM attempt('SAVEPOINT s');
SELECT * FROM attempt('DO ''BEGIN COMMIT; END''');
SELECT * FROM attempt('DO ''BEGIN ROLLBACK; END''');
SELECT * FROM attempt('PREPARE TRANSACTION ''h''');
SELECT * FROM attempt('SET TRANSACTION ISOLATION LEVEL SERIALIZABLE');
SELECT * FROM attempt('SET TRANSACTION READ ONLY');
SELECT * FROM attempt('VACUUM probe');
-- another role
SELECT * FROM attempt('RESET ROLE');
SELECT * FROM attempt('SET ROLE postgres');
SELECT * FROM attempt('SET SESSION AUTHORIZATION postgres');
SELECT * FROM attempt('RESET SESSION AUTHORIZATION');
SELECT * FROM attempt('SELECT set_config(''role'', ''postgres'', false)');
SELECT * FROM attempt('DO ''BEGIN EXECUTE $x$ RESET ROLE $x$; END''');
-- settings
SELECT * FROM attempt('SET work_mem = ''77MB''');
SELECT * FROM attempt('SET search_path = pg_temp');
SELECT * FROM attempt('SET TimeZone = ''Asia/Kathmandu''');
SELECT * FROM attempt('SELECT set_config(''work_mem'', ''78MB'', false), set_config(''search_path'', ''nowhere'', false)');
SELECT * FROM attempt('RESET ALL');
SELECT * FROM attempt('DISCARD ALL');
SELECT * FROM attempt('SET automation_engine.capture = off');
SELECT * FROM attempt('SET session_replication_role = replica');
\x off
SELECT current_user, current_setting('search_path'), current_setting('work_mem'), current_setting('TimeZone');
-- a step cannot write in another's name
SELECT count(*) FROM attempt('SELECT set_config(''automation_engine.actor'', ''somebody'', false)');
SELECT status FROM automation.define('h-try', trigger => automation.on_event('h.try'), run_as => 'regress_h_owner', steps => ARRAY[
    automation.sql($$ SELECT set_config('automation_engine.actor', 'somebody', false) $$),
    automation.publish('h.published')]);
SELECT automation.emit('h.try') > 0 AS emitted;
SELECT automation.drain();
SELECT actor, role FROM automation.events WHERE topic = 'h.published';

-- the session that drives the queue keeps what is its own
CREATE TEMPORARY TABLE mine (id int);
PREPARE mine AS SELECT 1 AS mine;
SELECT pg_advisory_lock(7);
LISTEN mine;
SET work_mem = '9MB';
BEGIN;
DECLARE mine CURSOR WITH HOLD FOR SELECT 1 AS one;
COMMIT;
SELECT count(*) FROM attempt('SELECT 1');
SELECT count(*) FROM mine;
EXECUTE mine;
FETCH mine;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND objid = 7;
SELECT pg_listening_channels();
SHOW work_mem;
CLOSE mine;
UNLISTEN mine;
DEALLOCATE mine;
SELECT pg_advisory_unlock(7);
RESET work_mem;
DROP TABLE mine;

-- and gets nothing of another role's: what that role left here could be run by whoever drives the queue
SELECT count(*) FROM attempt('CREATE TEMPORARY TABLE h_temp (id int)');
SELECT to_regclass('pg_temp.h_temp');
SELECT count(*) FROM attempt('CREATE TEMPORARY VIEW h_temp AS SELECT 1');
SELECT to_regclass('pg_temp.h_temp');
SELECT count(*) FROM attempt('PREPARE h_statement AS SELECT 1');
SELECT name FROM pg_prepared_statements WHERE name = 'h_statement';
SELECT count(*) FROM attempt('DECLARE h_cursor CURSOR WITH HOLD FOR SELECT 1');
SELECT name FROM pg_cursors WHERE name = 'h_cursor';
SELECT count(*) FROM attempt('LISTEN h_channel');
SELECT pg_listening_channels();

-- a deferred trigger of the owner runs as the owner, not as whoever commits
SET ROLE regress_h_owner;
CREATE TABLE deferred (id int);
CREATE FUNCTION who() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO hyg.probe (what) VALUES ('deferred trigger'); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER who AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION who();
RESET ROLE;
SELECT count(*) FROM attempt('INSERT INTO hyg.deferred VALUES (1)');
SELECT what, role FROM probe WHERE what = 'deferred trigger' AND role <> 'regress_h_owner';
SELECT count(*) FROM attempt('SET CONSTRAINTS ALL DEFERRED');

SELECT automation.drop_automation('h-try'), automation.drop_automation('h-probe');
SET client_min_messages = warning;
DROP SCHEMA hyg CASCADE;
DROP OWNED BY regress_h_owner;
DROP ROLE regress_h_owner;
