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
\ir recipes/hostile_steps.sql
\c attack postgres
SELECT attack.held(NOT rolsuper, 'mallory is no superuser') FROM pg_roles WHERE rolname = 'mallory';
SELECT attack.held(bool_and(by_role = 'mallory/mallory'), 'code of hers ran as mallory only: ' || string_agg(DISTINCT what || ' ' || by_role, ', '))
  FROM mallory.canary;
SELECT attack.held(count(*) = 0, 'no view or function in pg_temp was called') FROM mallory.canary WHERE what IN ('view', 'now');
