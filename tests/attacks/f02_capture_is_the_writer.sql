-- attack: run code of the table's owner with more rights than the writer has, through everything a table can carry
-- attacker: tabowner, who owns a watched table and fills it with functions
-- must not happen: capture runs one of them more often, or as another role, than the same statements without capture do
\i :attack_lib
SET SESSION AUTHORIZATION tabowner;
SET search_path = tabowner;
GRANT USAGE ON SCHEMA tabowner TO PUBLIC;
CREATE TABLE canary (what text, who name, role name);
GRANT SELECT, INSERT ON canary TO PUBLIC;
CREATE FUNCTION note(what text) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    INSERT INTO tabowner.canary VALUES (what, current_user, session_user);
    RETURN what;
END $$;
CREATE FUNCTION note_immutable(what text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    -- IMMUTABLE is a promise only: a function that it calls may write
    PERFORM tabowner.note(what);
    RETURN what;
END $$;
CREATE FUNCTION positive(int) RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$ BEGIN PERFORM tabowner.note('domain'); RETURN true; END $$;
CREATE DOMAIN checked AS int CHECK (tabowner.positive(VALUE));
CREATE FUNCTION on_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM tabowner.note('trigger'); RETURN NEW; END $$;
CREATE FUNCTION allowed() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$ BEGIN PERFORM tabowner.note('policy'); RETURN true; END $$;
CREATE FUNCTION compare(text, text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM tabowner.note('opclass'); RETURN pg_catalog.bttextcmp($1, $2); END $$;
CREATE FUNCTION shape() RETURNS text LANGUAGE sql AS $$ SELECT 'id int PRIMARY KEY, d text DEFAULT tabowner.note(''default''), g text GENERATED ALWAYS AS (tabowner.note_immutable(''generated'')) STORED, c tabowner.checked, v text COLLATE "C" CHECK (tabowner.note(''check'') IS NOT NULL)' $$;
DO $$ BEGIN
    EXECUTE format('CREATE TABLE tabowner.watched (%s)', tabowner.shape());
    EXECUTE format('CREATE TABLE tabowner.plain (%s)', tabowner.shape());
END $$;
CREATE TRIGGER on_row BEFORE INSERT OR UPDATE ON watched FOR EACH ROW EXECUTE FUNCTION on_row();
CREATE TRIGGER on_row BEFORE INSERT OR UPDATE ON plain FOR EACH ROW EXECUTE FUNCTION on_row();
CREATE INDEX ON watched (tabowner.note_immutable(v));
CREATE INDEX ON plain (tabowner.note_immutable(v));
ALTER TABLE watched ENABLE ROW LEVEL SECURITY;
ALTER TABLE plain ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON watched USING (tabowner.allowed());
CREATE POLICY p ON plain USING (tabowner.allowed());
CREATE VIEW v_watched AS SELECT *, tabowner.note('view') AS seen FROM watched;
CREATE VIEW v_plain AS SELECT *, tabowner.note('view') AS seen FROM plain;
GRANT SELECT, INSERT, UPDATE, DELETE ON watched, plain, v_watched, v_plain TO app;
CREATE TABLE ruled (a int);
CREATE RULE r AS ON INSERT TO ruled DO ALSO SELECT tabowner.note('rule');
RESET SESSION AUTHORIZATION;
RESET search_path;
SELECT automation.watch_table('tabowner.watched');
-- an operator class of hostile functions needs a superuser; so does an output function
SET SESSION AUTHORIZATION tabowner;
SELECT attack.refused($$ CREATE OPERATOR CLASS tabowner.hostile FOR TYPE text USING btree AS OPERATOR 1 pg_catalog.<, FUNCTION 1 tabowner.compare(text, text) $$, '42501');
SELECT attack.refused('CREATE TYPE tabowner.shell', '42501');
SELECT attack.refused('CREATE TYPE tabowner.shell (INPUT = int4in, OUTPUT = int4out)', '42501');
SELECT attack.refused('ALTER TYPE pg_catalog.int4 SET (SEND = int4send)', '42501');
SELECT attack.refused('DROP FUNCTION pg_catalog.int4out(int)', '42501');
RESET SESSION AUTHORIZATION;

-- shadows of all that capture might look up by name
CREATE SCHEMA shadow;
GRANT ALL ON SCHEMA shadow TO app, tabowner;
SET SESSION AUTHORIZATION tabowner;
CREATE FUNCTION shadow.to_jsonb(anyelement) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM tabowner.note('shadow'); RETURN '1'; END $$;
CREATE FUNCTION shadow.row_to_json(record) RETURNS json LANGUAGE plpgsql AS $$ BEGIN PERFORM tabowner.note('shadow'); RETURN '1'; END $$;
CREATE FUNCTION shadow.now() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN PERFORM tabowner.note('shadow'); RETURN 'epoch'; END $$;
CREATE FUNCTION shadow.eq(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM tabowner.note('shadow'); RETURN true; END $$;
CREATE OPERATOR shadow.= (LEFTARG = text, RIGHTARG = text, FUNCTION = shadow.eq);
RESET SESSION AUTHORIZATION;
GRANT USAGE ON SCHEMA shadow TO PUBLIC;
GRANT TEMPORARY ON DATABASE attack TO app;

TRUNCATE tabowner.canary;
CREATE TABLE runs_of (t text, who name, what text, times bigint);
GRANT ALL ON runs_of TO app;
SET SESSION AUTHORIZATION app;
SET search_path = shadow, pg_temp, pg_catalog;
CREATE TEMPORARY TABLE event (id bigint);
CREATE TEMPORARY TABLE entity_kind (kind text);
CREATE TEMPORARY TABLE event_default (id bigint);
INSERT INTO tabowner.plain (id, c, v) VALUES (1, 1, 'a');
UPDATE tabowner.plain SET v = 'b', c = 2;
UPDATE tabowner.v_plain SET v = 'c';
DELETE FROM tabowner.plain;
INSERT INTO public.runs_of SELECT 'plain', role, what, count(*) FROM tabowner.canary GROUP BY role, what, who;
RESET SESSION AUTHORIZATION;
TRUNCATE tabowner.canary;
SET SESSION AUTHORIZATION app;
INSERT INTO tabowner.watched (id, c, v) VALUES (1, 1, 'a');
UPDATE tabowner.watched SET v = 'b', c = 2;
UPDATE tabowner.v_watched SET v = 'c';
DELETE FROM tabowner.watched;
RESET SESSION AUTHORIZATION;
RESET search_path;
SELECT attack.held(count(*) = 4 AND bool_and(role = 'app'), 'the four changes are recorded, as those of app')
  FROM automation.events WHERE kind = 'watched';
SELECT attack.held((SELECT count(*) FROM tabowner.canary) > 0, 'the canary sings when the table is written');
SELECT attack.held(count(*) = 0, 'every function ran as often as without capture')
  FROM (SELECT what, count(*) AS times FROM tabowner.canary GROUP BY what) AS w
  FULL JOIN (SELECT what, sum(times) AS times FROM runs_of GROUP BY what) AS p USING (what)
 WHERE w.times IS DISTINCT FROM p.times;
SELECT attack.held(count(*) = 0, 'and only as app, or as the owner where Postgres itself says so (views)')
  FROM tabowner.canary WHERE who NOT IN ('app', 'tabowner') OR role <> 'app';
-- and by a superuser: nothing runs with rights that the statement alone would not give it
TRUNCATE tabowner.canary;
INSERT INTO tabowner.watched (id, c, v) VALUES (1, 1, 'a');
DELETE FROM tabowner.watched;
CREATE TABLE by_superuser AS SELECT what, count(*) FROM tabowner.canary GROUP BY what;
TRUNCATE tabowner.canary;
INSERT INTO tabowner.plain (id, c, v) VALUES (1, 1, 'a');
DELETE FROM tabowner.plain;
SELECT attack.held(count(*) = 0, 'written by a superuser, no function runs more often than without capture')
  FROM by_superuser AS w FULL JOIN (SELECT what, count(*) FROM tabowner.canary GROUP BY what) AS p USING (what)
 WHERE w.count IS DISTINCT FROM p.count;
-- the switch of capture is the superuser's
SET SESSION AUTHORIZATION app;
SELECT attack.refused('SET automation_engine.capture = off', '42501');
SELECT attack.refused('SET LOCAL automation_engine.capture = off', '42501');
SELECT attack.refused($$ SELECT set_config('automation_engine.capture', 'off', true) $$, '42501');
SELECT attack.refused('ALTER ROLE app SET automation_engine.capture = off', '42501');
SELECT attack.refused('CREATE FUNCTION app.f() RETURNS int LANGUAGE sql SET automation_engine.capture = off AS ''SELECT 1''', '42501');
SELECT attack.refused('SET session_replication_role = replica', '42501');
SELECT attack.refused('SET automation_engine.max_value_size = 1', '55P02');
RESET SESSION AUTHORIZATION;
