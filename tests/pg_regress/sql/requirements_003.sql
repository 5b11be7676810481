-- Behaviours of the fourth source document (automations of contacts) that no test elsewhere shows. Its e-mail step is not built.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv srcdir PG_ABS_SRCDIR
\set show :srcdir '/check/show.sql'
CREATE SCHEMA own;
SET search_path = own, public;
\i :show
CREATE TABLE contact (id int PRIMARY KEY, name text, n int);
CREATE TABLE effect (seq serial, what text);
SELECT automation.watch_table('contact', kind => 'c_contact');

-- R003-1: an automation is a trigger with its configuration, a status and steps in order
SELECT status FROM automation.define('c-follow', status => 'draft', trigger => automation.on_updated('c_contact', columns => '{n}', id => 'rises'), steps => ARRAY[
    automation.sql($$ INSERT INTO effect (what) VALUES ('first') $$, id => 'first'), automation.branch('new.n > 1', yes => 'last', no => NULL, id => 'high'),
    automation.delay('1 day', id => 'rest'), automation.sql($$ INSERT INTO effect (what) VALUES ('last') $$, id => 'last')]);
SELECT document #> '{triggers,0}', document -> 'status', (SELECT string_agg((s.value ->> 'do') || ' ' || (s.value ->> 'id'), ', ' ORDER BY s.ordinality) FROM jsonb_array_elements(document -> 'steps') WITH ORDINALITY AS s)
  FROM automation.document('c-follow') AS document;
SELECT ok FROM automation.activate('c-follow');
-- R003-2, R003-3: the trigger makes a run; its steps are taken one after the other, each recorded when it is taken
-- R003-29: the kinds delay and condition; R003-35: states of runs and of steps are not those of the automation
INSERT INTO contact VALUES (1, 'Ann', 0), (2, 'Bob', 0);
UPDATE contact SET n = id;
SELECT automation.drain() > 0;
SELECT r.entity, r.status, s.seq, s.step, s.kind, s.status FROM automation.runs AS r JOIN automation.run_steps AS s ON s.run_id = r.id WHERE r.automation = 'c-follow' ORDER BY r.entity, s.seq;
SELECT status FROM automation.automations WHERE name = 'c-follow';
-- R003-4: the outcome of a step is its result, where a branch went, or its error
SELECT s.step, s.result FROM automation.runs AS r JOIN automation.run_steps AS s ON s.run_id = r.id WHERE r.automation = 'c-follow' AND s.step = 'high' ORDER BY r.entity;
SELECT name FROM automation.define('c-bad', trigger => automation.on_event('c.bad'), steps => ARRAY[automation.sql('SELECT 1 / 0', id => 'bad')]);
SELECT automation.emit('c.bad') > 0, automation.drain() > 0;
SELECT s.step, s.status, s.error, s.result FROM automation.runs AS r JOIN automation.run_steps AS s ON s.run_id = r.id WHERE r.automation = 'c-bad';
SELECT automation.cancel_run(filter => $$ run.automation = 'c-follow' $$);

-- R003-41: a condition reads and does nothing else: it can neither call nor query
SELECT tried(format('SELECT automation.evaluate(%L)', e)) FROM unnest(ARRAY['nextval("own.effect_seq_seq") > 0', 'automation.emit("c.bad") > 0', '(SELECT 1) = 1']) AS e;
SELECT tried($$ SELECT * FROM automation.define('c-calls', trigger => automation.on_event('c.calls'), steps => ARRAY[automation.branch('pg_sleep(1) = 1', yes => NULL, no => NULL)]) $$);

-- R003-39: each kind of step has its own options, checked when it is saved; an option of another kind is refused
SELECT tried($$ SELECT path, sqlstate, message FROM automation.validate('{"name": "c-wrong", "trigger": {"on": "call"}, "steps": [{"do": "delay", "topic": "x"}, {"do": "sql", "for": "1 hour"}, {"do": "email", "to": "ann@example.com"}]}') $$);

SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'c-%';
SELECT automation.unwatch_table('contact');
SET client_min_messages = warning;
DROP SCHEMA own CASCADE;
