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
\ir recipes/hostile_steps.sql
\c attack postgres
SELECT attack.held(NOT rolsuper, 'mallory is no superuser') FROM pg_roles WHERE rolname = 'mallory';
SELECT attack.held(bool_and(by_role = 'mallory/mallory'), 'functions of hers ran as mallory only: ' || string_agg(DISTINCT what || ' ' || by_role, ', '))
  FROM mallory.canary;
