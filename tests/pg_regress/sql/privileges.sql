-- PUBLIC may nothing; an author sees and moves only what is its own; steps have the owner's rights and no more.
\set SHOW_CONTEXT never
-- nothing for PUBLIC, in no schema; but the trigger function, for the owners of partitioned tables that are watched
SELECT n.nspname, a.privilege_type FROM pg_namespace AS n, aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) AS a
 WHERE n.nspname LIKE 'automation%' AND a.grantee = 0;
SELECT p.oid::regprocedure FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
 WHERE p.pronamespace IN ('automation'::regnamespace, 'automation_internal'::regnamespace) AND a.grantee = 0;
SELECT c.oid::regclass FROM pg_class AS c, aclexplode(c.relacl) AS a
 WHERE c.relnamespace IN ('automation'::regnamespace, 'automation_internal'::regnamespace) AND a.grantee = 0;
-- no function of ours is SECURITY DEFINER without a search path, and none is anybody's but the extension's owner's
SELECT p.oid::regprocedure FROM pg_proc AS p
 WHERE p.pronamespace IN ('automation'::regnamespace, 'automation_internal'::regnamespace)
   AND p.prosecdef AND NOT coalesce(p.proconfig::text LIKE '%search_path%', false);

CREATE ROLE regress_p_ann LOGIN;
CREATE ROLE regress_p_bob LOGIN;
CREATE ROLE regress_p_out LOGIN;
CREATE SCHEMA priv;
GRANT USAGE, CREATE ON SCHEMA priv TO regress_p_ann, regress_p_bob;
SET search_path = priv, public;
-- without a grant
SET ROLE regress_p_out;
SELECT automation.status();
SELECT * FROM automation.runs;
SELECT * FROM automation_internal.event;
SELECT automation_internal.capture_change();
RESET ROLE;
-- what authors get
GRANT USAGE ON SCHEMA automation TO regress_p_ann, regress_p_bob;
GRANT SELECT ON ALL TABLES IN SCHEMA automation TO regress_p_ann, regress_p_bob;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA automation TO regress_p_ann, regress_p_bob;
GRANT USAGE ON SCHEMA automation_internal TO regress_p_ann, regress_p_bob;
GRANT EXECUTE ON FUNCTION automation_internal.define_document, automation_internal.define_text, automation_internal.step_options, automation_internal.trigger_options, automation_internal.text_or_object, automation_internal.duration, automation_internal.worker_list, automation_internal.running TO regress_p_ann, regress_p_bob;

SET ROLE regress_p_ann;
CREATE TABLE ann_item (id int PRIMARY KEY, secret text);
CREATE TABLE ann_effect (who name DEFAULT current_user, what text);
SELECT automation.watch_table('ann_item');
SELECT name, status FROM automation.define('p-ann', trigger => automation.on_changed('ann_item'), steps => ARRAY[
    automation.sql($$ INSERT INTO ann_effect (what) VALUES ('item ' || {{ event.id }}) $$)]);
INSERT INTO ann_item VALUES (1, 'of ann');
SELECT automation.emit('ann.topic', '{"secret": "of ann"}') > 0 AS emitted;
SELECT automation.drain();
SELECT * FROM ann_effect;
SELECT automation, status FROM automation.runs;
SELECT automation.start_run('p-ann') AS run \gset
SELECT set_config('priv.run', :'run', false) IS NOT NULL AS kept;
SELECT automation.route() >= 0 AS routed;

-- bob
SET ROLE regress_p_bob;
SELECT count(*) FROM automation.automations;
SELECT count(*) FROM automation.runs;
SELECT count(*) FROM automation.run_steps;
SELECT count(*) FROM automation.dispatches;
SELECT count(*) FROM automation.events WHERE kind = 'ann_item' OR topic LIKE 'ann%' OR topic LIKE 'automation%';
SELECT count(*) FROM automation.log;
SELECT count(*) FROM automation.audit_log;
SELECT count(*) FROM automation.stat_automations;
SELECT automation.timeline(:run);
SELECT automation.document('p-ann');
SELECT automation.drop_automation('p-ann');
SELECT * FROM automation.pause('p-ann');
SELECT automation.start_run('p-ann');
DO $$
BEGIN
    PERFORM automation.cancel_run((SELECT max(i) FROM generate_series(1, 100000) AS i));
EXCEPTION WHEN undefined_object THEN
    RAISE NOTICE 'no such run';
END $$;
-- her run, by its number: as if it were not there
DO $$
DECLARE
    run bigint := current_setting('priv.run')::bigint;
BEGIN
    PERFORM automation.cancel_run(run);
    RAISE NOTICE 'cancelled';
EXCEPTION WHEN undefined_object THEN
    RAISE NOTICE 'no such run';
END $$;
SELECT automation.dispatch();
SELECT automation.drain();
SELECT automation.define('p-ann', trigger => automation.on_event('bob.topic'), steps => ARRAY[automation.sql('SELECT 1')]);
\echo :LAST_ERROR_SQLSTATE
SELECT automation.define('p-bob', trigger => automation.on_event('bob.topic'), run_as => 'regress_p_ann', steps => ARRAY[automation.sql('SELECT 1')]);
\echo :LAST_ERROR_SQLSTATE
SELECT automation.define('p-bob', trigger => automation.on_event('bob.topic'), run_as => 'postgres', steps => ARRAY[automation.sql('SELECT 1')]);
\echo :LAST_ERROR_SQLSTATE
-- her table
SELECT automation.watch_table('ann_item');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.unwatch_table('ann_item');
SELECT automation.state('ann_item', '1');
\echo :LAST_ERROR_SQLSTATE
-- an automation on a kind whose table he may not read is refused, for him and for a superuser who defines it to run as him
SELECT name, status FROM automation.define('p-spy', trigger => automation.on_changed('ann_item'), steps => ARRAY[
    automation.publish('bob.got', '{"secret": new.secret}')]);
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
SELECT name, status FROM automation.define('p-spy', run_as => 'regress_p_bob', trigger => automation.on_changed('ann_item'), steps => ARRAY[automation.sql('SELECT 1')]);
-- one that was defined while he could read it is told nothing
GRANT SELECT ON ann_item TO regress_p_bob;
SET ROLE regress_p_bob;
SELECT name, status FROM automation.define('p-spy', trigger => automation.on_changed('ann_item'), steps => ARRAY[
    automation.publish('bob.got', '{"secret": new.secret}')]);
-- a guess that is right looks like one that is wrong
SELECT name, status FROM automation.define('p-guess-1', trigger => automation.on_changed('ann_item', filter => $$ new.secret = 'also of ann' $$), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT name, status FROM automation.define('p-guess-2', trigger => automation.on_changed('ann_item', filter => $$ new.secret = 'a bad guess' $$), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT name, status FROM automation.define('p-paused', trigger => automation.on_changed('ann_item'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT ok FROM automation.pause('p-paused');
RESET ROLE;
REVOKE SELECT ON ann_item FROM regress_p_bob;
SET ROLE regress_p_bob;
SELECT * FROM automation.resume('p-paused');
SELECT status FROM automation.automations WHERE name = 'p-paused';
SELECT automation.drop_automation('p-paused');
-- the engine's own tables and functions
SELECT count(*) FROM automation_internal.event;
DELETE FROM automation_internal.dispatch;
SELECT automation.sweep();
SELECT automation.start_workers();
SELECT automation.stop_workers();
RESET ROLE;
SET ROLE regress_p_ann;
INSERT INTO ann_item VALUES (2, 'also of ann');
RESET ROLE;
SELECT automation.drain() > 0 AS ran;
SELECT count(*) FROM automation.runs WHERE automation = 'p-spy';
SELECT automation, reason, count FROM automation.stat_gates WHERE automation LIKE 'p-%' AND reason = 'no_rights' ORDER BY 1;
SELECT level, automation, message, detail FROM automation.log WHERE code = 'no_rights' AND automation = 'p-spy';
SELECT count(*) FROM automation.events WHERE topic = 'bob.got';
SELECT count(DISTINCT (matched, filtered, filter_errors, refused, entered, failed)) AS ways_to_look FROM automation.stat_automations WHERE automation LIKE 'p-guess%';
SELECT count(DISTINCT n) AS ways_to_look
  FROM (SELECT a.name, count(r.id) AS n FROM automation.automations AS a LEFT JOIN automation.runs AS r ON r.automation = a.name
         WHERE a.name LIKE 'p-guess%' GROUP BY a.name) AS c;
SELECT automation.drop_automation('p-guess-1'), automation.drop_automation('p-guess-2');
SELECT * FROM ann_effect ORDER BY what;
-- granted, then he does; a run that is queued when the right is revoked fails before its first step
GRANT SELECT ON ann_item TO regress_p_bob;
INSERT INTO ann_item VALUES (4, 'not for bob');
SELECT automation.route() > 0 AS routed;
REVOKE SELECT ON ann_item FROM regress_p_bob;
SELECT automation.drain() > 0 AS ran;
SELECT status, sqlstate, message, detail, hint FROM automation.runs WHERE automation = 'p-spy';
GRANT SELECT ON ann_item TO regress_p_bob;
SET ROLE regress_p_ann;
INSERT INTO ann_item VALUES (3, 'shown to bob');
RESET ROLE;
SELECT automation.drain() > 0 AS ran;
SELECT payload FROM automation.events WHERE topic = 'bob.got';
SET ROLE regress_p_bob;
SELECT op, entity_id FROM automation.events WHERE kind = 'ann_item' ORDER BY id;
SELECT automation.drop_automation('p-spy');
-- steps have the owner's rights, not those of whoever made the change
SELECT name, status FROM automation.define('p-reach', trigger => automation.on_event('bob.reach'), steps => ARRAY[automation.sql('DELETE FROM priv.ann_item')]);
RESET ROLE;
SELECT automation.emit('bob.reach') > 0 AS emitted;
SELECT automation.drain() > 0 AS ran;
SELECT status, sqlstate, message FROM automation.runs WHERE automation = 'p-reach';
SELECT count(*) FROM ann_item;
-- a member of the role may do what the role may
GRANT regress_p_ann TO regress_p_bob;
SET ROLE regress_p_bob;
SELECT name FROM automation.automations ORDER BY name;
SELECT ok FROM automation.pause('p-ann');
RESET ROLE;
REVOKE regress_p_ann FROM regress_p_bob;

SELECT automation.drop_automation('p-ann'), automation.drop_automation('p-reach');
SELECT automation.unwatch_table('ann_item');
SET client_min_messages = warning;
DROP SCHEMA priv CASCADE;
DROP OWNED BY regress_p_ann, regress_p_bob, regress_p_out;
DROP ROLE regress_p_ann, regress_p_bob, regress_p_out;
