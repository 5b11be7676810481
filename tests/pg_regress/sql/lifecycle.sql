-- draft, active, paused, and every way between them; what happens to events meanwhile.
\set SHOW_CONTEXT never
CREATE SCHEMA life;
SET search_path = life, public;
CREATE TABLE item (id int PRIMARY KEY);
CREATE TABLE effect (n serial, what text);
SELECT automation.watch_table('item', kind => 'l_item');
CREATE VIEW shown AS SELECT status, ended_reason, entity, steps, trigger FROM automation.runs WHERE automation = 'l' ORDER BY id;
SELECT status FROM automation.define('l', trigger => automation.on_created('l_item'), status => 'draft',
    steps => ARRAY[automation.sql($$ INSERT INTO effect (what) VALUES ('item ' || {{ new.id }}) $$)]);
-- from each status to each
SELECT 'draft' AS was, * FROM automation.pause('l');
SELECT 'draft' AS was, * FROM automation.revert_to_draft('l');
SELECT 'draft' AS was, * FROM automation.resume('l');
SELECT 'active' AS was, * FROM automation.revert_to_draft('l');
SELECT 'active' AS was, * FROM automation.activate('l');
SELECT 'active' AS was, * FROM automation.resume('l');
SELECT 'active' AS was, * FROM automation.pause('l');
SELECT 'paused' AS was, * FROM automation.pause('l');
SELECT 'paused' AS was, * FROM automation.activate('l');
SELECT 'active' AS was, * FROM automation.pause('l');
SELECT 'paused' AS was, * FROM automation.resume('l');
SELECT 'active' AS was, * FROM automation.pause('l');
SELECT status, disabled_by, disable_details - 'at' AS disable_details FROM automation.automations WHERE name = 'l';
SELECT 'paused' AS was, * FROM automation.revert_to_draft('l');
SELECT 'nothing' AS was, * FROM automation.activate('nothing');
SELECT action, automation, details FROM automation.audit_log WHERE automation = 'l' ORDER BY at, action;
SELECT topic, payload FROM automation.events WHERE topic LIKE 'automation.%' AND payload ->> 'automation' = 'l' ORDER BY id;

-- a draft starts nothing
INSERT INTO item VALUES (1);
SELECT automation.drain();
SELECT * FROM shown;
-- an active one does
SELECT ok FROM automation.activate('l');
INSERT INTO item VALUES (2);
SELECT automation.drain();
SELECT * FROM shown;
-- paused between routing and running: what is queued ends as cancelled
INSERT INTO item VALUES (3);
SELECT automation.route() > 0 AS routed;
SELECT * FROM shown WHERE status = 'pending';
SELECT ok FROM automation.pause('l');
SELECT automation.drain();
SELECT * FROM shown;
-- what happens while it is paused starts nothing, later neither
INSERT INTO item VALUES (4);
SELECT automation.drain();
SELECT ok FROM automation.resume('l');
SELECT automation.drain();
SELECT * FROM effect;
-- a queued run keeps its version
INSERT INTO item VALUES (5);
SELECT automation.route() > 0 AS routed;
SELECT version FROM automation.define('l', trigger => automation.on_created('l_item'),
    steps => ARRAY[automation.sql($$ INSERT INTO effect (what) VALUES ('new item ' || {{ new.id }}) $$)]);
INSERT INTO item VALUES (6);
SELECT automation.drain();
SELECT what FROM effect ORDER BY n;
SELECT r.version, r.status, r.entity FROM automation.runs AS r WHERE r.automation = 'l' AND r.entity IN ('l_item:5', 'l_item:6') ORDER BY r.id;
-- started by hand
SELECT automation.start_run('l', '{"why": "by hand"}') > 0 AS started;
SELECT automation.drain();
SELECT status, trigger, entity, error FROM automation.runs WHERE automation = 'l' ORDER BY id DESC LIMIT 1;
SELECT status FROM automation.define('l-call', trigger => automation.on_call(), steps => ARRAY[
    automation.sql($$ INSERT INTO effect (what) VALUES ('called with ' || {{ payload.why }}) $$)]);
SELECT automation.start_run('l-call', '{"why": "a reason"}') > 0 AS started;
SELECT automation.drain();
SELECT what FROM effect ORDER BY n DESC LIMIT 1;
-- refused
SELECT automation.start_run('nothing');
\echo :LAST_ERROR_SQLSTATE
SELECT ok FROM automation.pause('l-call');
SELECT automation.start_run('l-call');
\echo :LAST_ERROR_SQLSTATE
SELECT ok FROM automation.resume('l-call');
-- paused between start_run and its routing
SELECT automation.start_run('l-call') > 0 AS started;
SELECT ok FROM automation.pause('l-call');
SELECT automation.drain();
SELECT status, ended_reason FROM automation.runs WHERE automation = 'l-call' ORDER BY id DESC LIMIT 1;
SELECT ok FROM automation.resume('l-call');

-- cancel_run: before routing, while queued, again, after the end, a run that is not there
SELECT automation.start_run('l-call') AS run \gset
SELECT automation.cancel_run(:run);
SELECT automation.drain();
SELECT status, ended_reason FROM automation.runs WHERE id = :run;
SELECT automation.start_run('l-call') AS run \gset
SELECT automation.route() > 0 AS routed;
SELECT status FROM automation.runs WHERE id = :run;
SELECT automation.cancel_run(:run), automation.cancel_run(:run);
SELECT automation.drain();
SELECT status, ended_reason FROM automation.runs WHERE id = :run;
SELECT automation.start_run('l-call', '{"why": "to the end"}') AS run \gset
SELECT automation.drain();
DO $$
BEGIN
    PERFORM automation.cancel_run((SELECT max(id) FROM automation.runs));
EXCEPTION WHEN object_not_in_prerequisite_state THEN
    RAISE NOTICE '%', regexp_replace(sqlerrm, '\d+', 'N');
END $$;
SELECT automation.cancel_run(-1);
\echo :LAST_ERROR_SQLSTATE
-- in the transaction that started it
BEGIN;
SELECT automation.start_run('l-call', '{"why": "never"}') AS run \gset
SELECT automation.cancel_run(:run);
COMMIT;
SELECT automation.drain();
SELECT status, ended_reason FROM automation.runs WHERE id = :run;
SELECT count(*) FROM effect WHERE what LIKE '%never%';

-- drop_automation: what is queued is cancelled, or goes on to its end; history keeps its name
SELECT name, version FROM automation.define('l-finish', trigger => automation.on_created('l_item'),
  steps => ARRAY[automation.sql($$ SELECT 1 $$)]);
INSERT INTO item VALUES (7);
SELECT automation.route() > 0 AS routed;
SELECT automation.drop_automation('l', runs => 'maybe');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.drop_automation('l-finish', runs => 'finish');
SELECT automation.drop_automation('l');
SELECT automation.drain();
SELECT status, ended_reason, automation FROM automation.runs WHERE entity = 'l_item:7' ORDER BY automation;
SELECT count(*) FROM automation.automations WHERE name = 'l';
SELECT automation.drop_automation('l-call');
SELECT automation.unwatch_table('item');
SET client_min_messages = warning;
DROP SCHEMA life CASCADE;
