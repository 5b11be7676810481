-- attack: use the right to the capture function, which every owner of a watched partitioned table needs
-- attacker: tabowner, who owns a watched partitioned table, and app, who owns nothing of it
-- must not happen: the owner cannot create, attach or detach partitions, or a role uses the capture function by itself
\i :attack_lib
SET SESSION AUTHORIZATION tabowner;
SET search_path = tabowner;
CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
RESET SESSION AUTHORIZATION;
SELECT automation.watch_table('tabowner.p');
SET SESSION AUTHORIZATION tabowner;
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE TABLE p2 (id int NOT NULL, v text);
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (10) TO (20);
INSERT INTO p VALUES (1, 'a'), (11, 'b');
ALTER TABLE p DETACH PARTITION p2;
INSERT INTO p2 VALUES (12, 'not recorded');
RESET SESSION AUTHORIZATION;
SELECT attack.held(array_agg(entity_id ORDER BY id) = '{1,11}', 'rows of created and attached partitions are recorded')
  FROM automation.events WHERE kind = 'p';
SELECT attack.held(NOT has_schema_privilege('app', 'automation_internal', 'USAGE'), 'app cannot name the function');

-- app: a trigger of its own with the engine's function, by name, by a search path, by a copy of the function
SELECT oid AS capture FROM pg_proc WHERE proname = 'capture_change' \gset
SET SESSION AUTHORIZATION app;
CREATE TABLE app.t (id int PRIMARY KEY, v text);
SELECT attack.refused($$ CREATE TRIGGER c AFTER INSERT ON app.t FOR EACH ROW EXECUTE FUNCTION automation_internal.capture_change('{"kind":"forged","id":["id"]}') $$, '42501');
SET search_path = automation_internal, app;
SELECT attack.refused($$ CREATE TRIGGER c AFTER INSERT ON app.t FOR EACH ROW EXECUTE FUNCTION capture_change('{"kind":"forged","id":["id"]}') $$, '42883');
RESET search_path;
SELECT attack.refused($$ CREATE FUNCTION app.mine() RETURNS trigger LANGUAGE c AS 'automation_engine', 'automation_capture_change' $$, '42501');
SELECT attack.refused($$ SELECT automation_internal.capture_change() $$, '42501');
-- by oid: what calls functions by their oid does so in the catalog, which app cannot write, or prints the name
SELECT attack.refused(format($$ CREATE TRIGGER c AFTER INSERT ON app.t FOR EACH ROW EXECUTE FUNCTION %s() $$, :capture::oid::regproc), '42501');
SELECT attack.refused(format($$ UPDATE pg_proc SET pronamespace = 'app'::regnamespace WHERE oid = %s $$, :capture), '42501');
SELECT attack.refused(format($$ CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION %s() $$, :capture::oid::regproc), '42501');
SELECT attack.refused(format($$ CREATE OPERATOR app.=# (LEFTARG = int, FUNCTION = %s) $$, :capture::oid::regproc), '42%');
SELECT attack.refused(format($$ CREATE AGGREGATE app.agg(int) (SFUNC = %s, STYPE = int) $$, :capture::oid::regproc), '42%');
-- a table of the kind LIKE or INHERITS takes no triggers along
SELECT attack.refused($$ CREATE TABLE app.copy (LIKE tabowner.p INCLUDING ALL) $$, '42501');
-- a partition that app attaches to a table of tabowner's, or a table of app's under the watched one
SELECT attack.refused($$ ALTER TABLE tabowner.p ATTACH PARTITION app.t FOR VALUES FROM (20) TO (30) $$, '42501');
-- a partition of the other owner: app would have to own both
RESET SESSION AUTHORIZATION;
-- called outside a trigger, even by a superuser: a clean error
SELECT attack.refused('SELECT automation_internal.capture_change()', '0A000');
SELECT attack.refused($$ DO $d$ BEGIN PERFORM automation_internal.capture_change(); END $d$ $$, '0A000');
SELECT attack.held(count(*) = 0, 'no event of a forged kind') FROM automation.events WHERE kind IS DISTINCT FROM 'p';
