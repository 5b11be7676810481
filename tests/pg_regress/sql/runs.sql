-- What runs do and what is kept of them: steps, results, errors, order, depth.
\set SHOW_CONTEXT never
CREATE SCHEMA runs;
SET search_path = runs, public;
CREATE TABLE item (id int PRIMARY KEY, status text, total numeric, at timestamptz, tags text[], doc jsonb);
CREATE TABLE effect (n serial, what text);
SELECT automation.watch_table('item', kind => 'r_item');
CREATE VIEW last_run AS
    SELECT automation, version, status, key, entity, steps, error, trigger, ended_reason
      FROM automation.runs ORDER BY id DESC LIMIT 1;
CREATE VIEW last_steps AS
    SELECT seq, step, kind, status, attempt, result, error
      FROM automation.run_steps WHERE run_id = (SELECT max(id) FROM automation.runs) ORDER BY seq;

-- a filter decides when the event is routed; what does not match starts nothing and is counted
SELECT status FROM automation.define('r-paid',
    trigger => automation.on_updated('r_item', filter => $$ new.status becomes 'paid' and new.total > 100 $$),
    key => 'new.id',
    steps => ARRAY[automation.sql($$ INSERT INTO effect (what) VALUES ('paid ' || {{ new.id }} || ' after ' || {{ old.status }}) RETURNING what $$)]);
INSERT INTO item VALUES (1, 'new', 250), (2, 'new', 50);
UPDATE item SET status = 'paid';
UPDATE item SET total = 300;
SELECT automation.drain();
SELECT * FROM last_run;
SELECT * FROM last_steps;
SELECT matched, filtered, refused, entered, completed, failed, active FROM automation.stat_automations WHERE automation = 'r-paid';
SELECT automation, reason, attempt, owner FROM automation.dispatches;
-- the columns of a trigger
SELECT version FROM automation.define('r-paid', trigger => automation.on_updated('r_item', columns => '{status}'), steps => ARRAY[
    automation.sql($$ INSERT INTO effect (what) VALUES ('status of ' || {{ new.id }}) $$)]);
UPDATE item SET total = 1 WHERE id = 1;
UPDATE item SET status = 'sent', total = 2 WHERE id = 1;
SELECT automation.drain();
SELECT what FROM effect ORDER BY n;
SELECT automation.drop_automation('r-paid');

-- the event in the steps: parameters are bound, never pasted, and keep every digit
SELECT status FROM automation.define('r-bind', trigger => automation.on_created('r_item'), steps => ARRAY[
    automation.sql($$ SELECT {{ new.id }}::int AS id, {{ new.status }}::text AS status, {{ new.total }}::numeric AS total,
                             {{ new.at }}::timestamptz AS at, {{ new.tags }}::text[] AS tags, {{ new.doc }}::jsonb AS doc,
                             {{ event.topic }}::text AS topic, {{ null }}::int AS nothing, {{ true }}::boolean AS yes $$, id => 'a'),
    automation.sql($$ INSERT INTO effect (what) SELECT {{ steps.a.row.total }}::text || ' of ' || {{ steps.a.count }} $$)]);
INSERT INTO item VALUES (3, $$'; DROP TABLE effect; --$$, 12345678901234567890.12345678901234567890, '2020-01-01 12:00+02', '{a,"b c",NULL}', '{"k": [1.10, null]}');
SELECT automation.drain();
SELECT seq, status, jsonb_pretty(result) AS result FROM last_steps;
SELECT what FROM effect ORDER BY n DESC LIMIT 1;
SELECT automation.drop_automation('r-bind');

-- publish, notify, call; a condition on a step; a step that is switched off
CREATE FUNCTION double(args jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('n', (args ->> 'n')::numeric * 2) $$;
SELECT status FROM automation.define('r-steps', trigger => automation.on_event('r.start'), steps => ARRAY[
    automation.call('double', '{"n": payload.n}', id => 'twice'),
    automation.publish('r.next', '{"n": steps.twice.result.n}'),
    automation.notify('r_channel', '{"n": payload.n}'),
    automation.sql('SELECT 1/0', condition => 'payload.n > 100'),
    automation.sql('SELECT 1/0', enabled => false)]);
SELECT status FROM automation.define('r-next', trigger => automation.on_event('r.next'), steps => ARRAY[
    automation.sql($$ INSERT INTO effect (what) VALUES ('next ' || {{ payload.n }}) $$)]);
SELECT automation.emit('r.start', '{"n": 21.50}') > 0 AS emitted;
SELECT automation.drain();
SELECT what FROM effect ORDER BY n DESC LIMIT 1;
SELECT s.step, s.kind, s.status, s.result - 'event_id' AS result FROM automation.run_steps AS s
  JOIN automation.runs AS r ON r.id = s.run_id WHERE r.automation = 'r-steps' ORDER BY s.seq;
-- who did it, and how deep
SELECT e.topic, e.actor, e.depth, e.cause_run = r.id AS caused_by_the_run
  FROM automation.events AS e, automation.runs AS r
 WHERE e.topic = 'r.next' AND r.automation = 'r-steps';
SELECT automation.drop_automation('r-steps'), automation.drop_automation('r-next');

-- an error fails the run, undoes that step, keeps what other steps did before, and is recorded with its five fields
CREATE FUNCTION complain() RETURNS void LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'the message' USING ERRCODE = 'UE001', DETAIL = 'the detail', HINT = 'the hint'; END $$;
SELECT status FROM automation.define('r-fail', trigger => automation.on_event('r.fail'), steps => ARRAY[
    automation.sql($$ INSERT INTO effect (what) VALUES ('before the failure') $$),
    automation.sql($$ WITH x AS (INSERT INTO effect (what) VALUES ('in the failing step')) SELECT complain() $$, id => 'bad'),
    automation.sql($$ INSERT INTO effect (what) VALUES ('after the failure') $$)]);
SELECT automation.emit('r.fail') > 0 AS emitted;
SELECT automation.drain();
SELECT status, ended_reason, error, sqlstate, message, detail, hint, context FROM automation.runs ORDER BY id DESC LIMIT 1;
SELECT * FROM last_steps;
SELECT what FROM effect WHERE what LIKE '%fail%' ORDER BY n;
-- other errors: where the step's text is at fault, it says where
SELECT version FROM automation.define('r-fail', trigger => automation.on_event('r.fail'), steps => ARRAY[
    automation.sql($$ SELECT {{ payload.n }}::int $$)]);
SELECT automation.emit('r.fail', '{"n": "many"}') > 0 AS emitted;
SELECT automation.drain();
SELECT sqlstate, message FROM automation.runs ORDER BY id DESC LIMIT 1;
SELECT version FROM automation.define('r-fail', trigger => automation.on_event('r.fail'), steps => ARRAY[
    automation.sql($$ SELECT 1 / {{ payload.n }}::int $$, continue_on_error => true, id => 'try'),
    automation.sql($$ INSERT INTO effect (what) VALUES ('went on after ' || {{ steps.try.error.sqlstate }}) $$)]);
SELECT automation.emit('r.fail', '{"n": 0}') > 0 AS emitted;
SELECT automation.drain();
SELECT status, error FROM last_run;
SELECT step, status, error FROM last_steps;
SELECT what FROM effect ORDER BY n DESC LIMIT 1;
-- a table that is gone, a statement that takes too long
CREATE TABLE soon_gone (id int);
SELECT version FROM automation.define('r-fail', trigger => automation.on_event('r.fail'), steps => ARRAY[
    automation.sql($$ INSERT INTO soon_gone VALUES (1) $$)]);
DROP TABLE soon_gone;
SELECT automation.emit('r.fail') > 0 AS emitted;
SELECT automation.drain();
SELECT status, sqlstate, message FROM automation.runs ORDER BY id DESC LIMIT 1;
SELECT version FROM automation.define('r-fail', trigger => automation.on_event('r.fail'), steps => ARRAY[
    automation.sql($$ SELECT pg_sleep(30) $$, timeout => '50 ms')]);
SELECT automation.emit('r.fail') > 0 AS emitted;
SELECT automation.drain();
SELECT status, sqlstate, message FROM automation.runs ORDER BY id DESC LIMIT 1;
-- a condition that is not true skips the run
SELECT version FROM automation.define('r-fail', trigger => automation.on_event('r.fail'), condition => 'payload.n > 5', steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.emit('r.fail', '{"n": 1}') > 0 AS emitted;
SELECT automation.emit('r.fail', '{"n": 6}') > 0 AS emitted;
SELECT automation.drain();
SELECT status, ended_reason, steps FROM automation.runs WHERE automation = 'r-fail' ORDER BY id DESC LIMIT 2;
SELECT matched, filtered, entered, completed, failed, skipped FROM automation.stat_automations WHERE automation = 'r-fail';
SELECT automation.drop_automation('r-fail');

-- poison stays local: one run of a batch fails, the others do not
SELECT status FROM automation.define('r-batch', trigger => automation.on_event('r.batch'), steps => ARRAY[
    automation.sql($$ INSERT INTO effect (what) SELECT 'batch ' || 10 / {{ payload.n }}::int $$)]);
SELECT count(automation.emit('r.batch', jsonb_build_object('n', i))) FROM generate_series(-2, 2) AS i;
SELECT automation.drain();
SELECT status, error, count(*) FROM automation.runs WHERE automation = 'r-batch' GROUP BY 1, 2 ORDER BY 1;
SELECT what FROM effect WHERE what LIKE 'batch%' ORDER BY n;
SELECT automation.drop_automation('r-batch');

-- runs of one entity start in the order of its changes
SELECT status FROM automation.define('r-order', trigger => automation.on_changed('r_item', filter => 'event.id >= "500"'), steps => ARRAY[
    automation.sql($$ INSERT INTO effect (what) VALUES ('order ' || {{ event.id }} || ' ' || coalesce({{ new.status }}, 'gone')) $$)]);
INSERT INTO item (id, status) VALUES (501, 'a'), (502, 'a');
UPDATE item SET status = 'b' WHERE id > 500;
UPDATE item SET status = 'c' WHERE id > 500;
DELETE FROM item WHERE id > 500;
SELECT automation.drain();
SELECT string_agg(what, ', ' ORDER BY n) FROM effect WHERE what LIKE 'order 501%';
SELECT string_agg(what, ', ' ORDER BY n) FROM effect WHERE what LIKE 'order 502%';
SELECT automation.drop_automation('r-order');

-- a chain of causes is cut off: a change more than 16 runs deep starts nothing, and that is recorded
SELECT status FROM automation.define('r-loop', trigger => automation.on_updated('r_item', columns => '{total}'), steps => ARRAY[
    automation.sql($$ UPDATE item SET total = total + 1 WHERE id = {{ new.id }} $$)]);
INSERT INTO item VALUES (600, 'loop', 0);
UPDATE item SET total = 1 WHERE id = 600;
SELECT automation.drain();
SELECT total FROM item WHERE id = 600;
SELECT max(depth), count(*) FROM automation.events WHERE entity_id = '600' AND op = 'updated';
SELECT actor, count(*) FROM automation.events WHERE entity_id = '600' AND op = 'updated' GROUP BY actor ORDER BY 2;
SELECT level, code, automation, regexp_replace(message, '\d+', 'N') AS message, detail FROM automation.log WHERE code = 'chain_too_deep';
SELECT matched, refused, completed FROM automation.stat_automations WHERE automation = 'r-loop';
SELECT automation.drop_automation('r-loop');

-- drain() inside a transaction: all of it, or nothing
SELECT status FROM automation.define('r-tx', trigger => automation.on_created('r_item'), steps => ARRAY[
    automation.sql($$ INSERT INTO effect (what) VALUES ('tx ' || {{ new.id }}) $$),
    automation.sql($$ UPDATE item SET status = 'seen' WHERE id = {{ new.id }} $$)]);
BEGIN;
INSERT INTO item (id) VALUES (700);
SELECT automation.drain();
SELECT status FROM item WHERE id = 700;
SELECT status, entity FROM last_run;
ROLLBACK;
SELECT automation.drain();
SELECT count(*) FROM effect WHERE what LIKE 'tx%';
BEGIN;
INSERT INTO item (id) VALUES (701);
SELECT automation.drain();
INSERT INTO item (id) VALUES (702);
SELECT automation.drain();
COMMIT;
SELECT automation.drain();
SELECT what FROM effect WHERE what LIKE 'tx%' ORDER BY n;
SELECT automation.drop_automation('r-tx');

-- large results are cut, not kept whole
SELECT status FROM automation.define('r-big', trigger => automation.on_event('r.big'), steps => ARRAY[
    automation.sql($$ SELECT i, repeat('x', 1000) AS x FROM generate_series(1, 5000) AS i $$)]);
SELECT automation.emit('r.big') > 0 AS emitted;
SELECT automation.drain();
SELECT status, result ->> 'count' AS count, jsonb_array_length(result -> 'rows') < 100 AS fewer_rows, result -> 'truncated' AS truncated,
       length(result::text) < 200000 AS bounded FROM last_steps;
SELECT automation.drop_automation('r-big');
-- tenants
SELECT status FROM automation.define('r-acme', trigger => automation.on_event('r.tenant'), tenant => 'acme', steps => ARRAY[
    automation.sql($$ INSERT INTO effect (what) VALUES ('acme ' || {{ payload.n }}) $$)]);
SELECT status FROM automation.define('r-all', trigger => automation.on_event('r.tenant'), steps => ARRAY[
    automation.sql($$ INSERT INTO effect (what) VALUES ('all ' || {{ payload.n }}) $$)]);
SELECT count(automation.emit('r.tenant', jsonb_build_object('n', n), tenant => t)) FROM (VALUES (1, 'acme'), (2, 'other'), (3, NULL)) AS v (n, t);
SELECT automation.drain();
SELECT what FROM effect WHERE what ~ '^(acme|all)' ORDER BY what;
SELECT automation.drop_automation('r-acme'), automation.drop_automation('r-all');

-- the timeline of a run, without its times
SELECT status FROM automation.define('r-line', trigger => automation.on_created('r_item'), steps => ARRAY[automation.sql('SELECT 1 AS one'), automation.sql('SELECT 1/0')]);
INSERT INTO item (id) VALUES (800);
SELECT automation.drain();
SELECT regexp_replace(regexp_replace(line, 'in [\d.]+ ms', 'in N ms'), '(run|event) \d+', '\1 N') FROM automation.timeline((SELECT max(id) FROM automation.runs)) AS line;
SELECT automation.drop_automation('r-line');
-- every function, view and column has a comment
SELECT c.relname, a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
 WHERE c.relnamespace = 'automation'::regnamespace AND c.relkind = 'v' AND col_description(c.oid, a.attnum) IS NULL;
SELECT p.oid::regprocedure FROM pg_proc AS p WHERE p.pronamespace = 'automation'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL;
-- nothing is left over
SELECT count(*) FROM automation_internal.dispatch;
SELECT automation.unwatch_table('item');
SET client_min_messages = warning;
DROP SCHEMA runs CASCADE;
