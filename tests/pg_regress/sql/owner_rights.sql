-- dispatch() and drain() run the work of an owner only if an executor could: the role may log in, has not expired, may
-- connect, is no superuser unless that is allowed. What is refused stays queued.
\set SHOW_CONTEXT never
CREATE ROLE regress_o_ann LOGIN;
CREATE ROLE regress_o_bob LOGIN;
CREATE ROLE regress_o_see LOGIN;
SELECT automation.grant_usage('regress_o_ann', 'author'), automation.grant_usage('regress_o_bob', 'author'), automation.grant_usage('regress_o_see', 'viewer');
CREATE SCHEMA own;
GRANT USAGE, CREATE ON SCHEMA own TO regress_o_ann, regress_o_bob;
SET search_path = own, public;
CREATE TABLE done (n int, by_role name DEFAULT current_user);
GRANT INSERT ON done TO regress_o_ann, regress_o_bob;
SET ROLE regress_o_ann;
SELECT name FROM automation.define('o-ann', trigger => automation.on_event('o.go'), steps => ARRAY[automation.sql($$ INSERT INTO done VALUES (({{ payload.n }})::int) $$)]);
SET ROLE regress_o_bob;
SELECT name FROM automation.define('o-bob', trigger => automation.on_event('o.go'), steps => ARRAY[automation.sql($$ INSERT INTO done VALUES (({{ payload.n }})::int) $$)]);
RESET ROLE;
-- may not log in: told once, the other owner's work runs, by dispatch() neither
ALTER ROLE regress_o_ann NOLOGIN;
SELECT automation.emit('o.go', '{"n": 1}') > 0 AS emitted;
SELECT automation.drain();
SELECT automation.dispatch();
SELECT * FROM done;
SELECT automation, status FROM automation.runs WHERE automation = 'o-ann';
SELECT * FROM automation.status() WHERE item LIKE 'owner%';
-- a viewer is told how many, not whom; a member of pg_monitor is told whom
SET ROLE regress_o_see;
SELECT * FROM automation.status() WHERE item LIKE 'owner%';
RESET ROLE;
GRANT pg_monitor TO regress_o_see;
SET ROLE regress_o_see;
SELECT item, status FROM automation.status() WHERE item LIKE 'owner%';
RESET ROLE;
-- the owner itself, in a session that it has had for long
SET SESSION AUTHORIZATION regress_o_ann;
SELECT automation.drain();
RESET SESSION AUTHORIZATION;
ALTER ROLE regress_o_ann LOGIN VALID UNTIL '2001-01-01';
SELECT automation.drain();
ALTER ROLE regress_o_ann VALID UNTIL 'infinity' CONNECTION LIMIT 0;
SELECT automation.drain();
ALTER ROLE regress_o_ann CONNECTION LIMIT -1;
REVOKE CONNECT ON DATABASE regression FROM PUBLIC;
SELECT automation.drain();
GRANT CONNECT ON DATABASE regression TO PUBLIC;
-- the right is back: so is the work
SELECT automation.drain();
SELECT * FROM done ORDER BY by_role;
SELECT * FROM automation.status() WHERE item LIKE 'owner%';

-- a step cannot undo SET ROLE of the session that drives it
SET ROLE regress_o_ann;
SELECT name FROM automation.define('o-rise', trigger => automation.on_event('o.rise'), steps => ARRAY[automation.sql($$ DO $do$ BEGIN RESET ROLE; ALTER ROLE regress_o_ann SUPERUSER; END $do$ $$)]);
SELECT automation.emit('o.rise') > 0 AS emitted;
SELECT automation.drain();
RESET ROLE;
SELECT rolsuper FROM pg_roles WHERE rolname = 'regress_o_ann';
SELECT status, sqlstate, message FROM automation.runs WHERE automation = 'o-rise';
-- nor SET SESSION AUTHORIZATION
SET SESSION AUTHORIZATION regress_o_ann;
SELECT name FROM automation.define('o-rise-2', trigger => automation.on_event('o.rise.2'), steps => ARRAY[automation.sql($$ DO $do$ BEGIN RESET SESSION AUTHORIZATION; ALTER ROLE regress_o_ann SUPERUSER; END $do$ $$)]);
SELECT automation.emit('o.rise.2') > 0 AS emitted;
SELECT automation.drain();
RESET SESSION AUTHORIZATION;
SELECT rolsuper FROM pg_roles WHERE rolname = 'regress_o_ann';
SELECT status, sqlstate, message FROM automation.runs WHERE automation = 'o-rise-2';
-- in a session that its owner has logged in to, a step may do as it does in an executor
\c - regress_o_ann
SET search_path = own, public;
SELECT name FROM automation.define('o-temp', trigger => automation.on_event('o.temp'), steps => ARRAY[
    automation.sql($$ CREATE TEMPORARY TABLE of_the_step ON COMMIT DROP AS SELECT 1 $$)]);
SELECT automation.emit('o.temp') > 0 AS emitted;
SELECT automation.drain();
SELECT status, sqlstate FROM automation.runs WHERE automation = 'o-temp';
\c - postgres
SET search_path = own, public;

-- run_as: asked of the caller when it defines. The automation is the other role's then, and goes on when the membership ends
GRANT regress_o_ann TO regress_o_bob;
SET ROLE regress_o_bob;
SELECT name FROM automation.define('o-as', trigger => automation.on_event('o.as'), run_as => 'regress_o_ann', steps => ARRAY[automation.sql($$ INSERT INTO done VALUES (7) $$)]);
RESET ROLE;
REVOKE regress_o_ann FROM regress_o_bob;
SET ROLE regress_o_bob;
SELECT name FROM automation.automations ORDER BY name;
SELECT reason FROM automation.pause('o-as');
SELECT automation.define('o-as', trigger => automation.on_event('o.as'), run_as => 'regress_o_ann', steps => ARRAY[automation.sql('SELECT 1')]);
RESET ROLE;
SELECT automation.emit('o.as') > 0 AS emitted;
SELECT automation.drain();
SELECT * FROM done WHERE n = 7;

DO $$ BEGIN PERFORM automation.drop_automation(name) FROM automation.automations WHERE name LIKE 'o-%'; END $$;
SELECT automation.revoke_usage('regress_o_ann'), automation.revoke_usage('regress_o_bob'), automation.revoke_usage('regress_o_see');
DROP SCHEMA own CASCADE;
DROP OWNED BY regress_o_ann, regress_o_bob, regress_o_see;
DROP ROLE regress_o_ann, regress_o_bob, regress_o_see;
