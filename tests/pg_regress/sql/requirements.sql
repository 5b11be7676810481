-- Behaviours of the source documents that no test elsewhere names, by number.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv srcdir PG_ABS_SRCDIR
\set show :srcdir '/check/show.sql'
CREATE SCHEMA req;
SET search_path = req, public;
\i :show
CREATE TABLE item (id int PRIMARY KEY, status text, n int, doc jsonb);
CREATE TABLE effect (seq serial, what text);
SELECT automation.watch_table('item', kind => 'q_item');
CREATE FUNCTION happened() RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM automation.drain();
    RETURN QUERY SELECT what FROM req.effect ORDER BY seq;
    DELETE FROM req.effect;
END $$;
CREATE FUNCTION says(what text DEFAULT '''''') RETURNS automation.step LANGUAGE sql AS
$$ SELECT automation.sql('INSERT INTO req.effect (what) VALUES ({{ run.automation + '' '' + event.topic + '' '' + (' || what || ') }})') $$;

-- R001-6, R001-17: one segment, any number, a part of one
SELECT pattern, topic, automation.match_topic(pattern, topic) FROM (VALUES
    ('graph.node.*', 'graph.node.created'), ('graph.node.*', 'graph.node.created.Skills'),
    ('graph.node.created.*', 'graph.node.created.Skills'), ('graph.node.created.*', 'graph.node.created'),
    ('graph.#', 'graph.node.created'), ('graph.#', 'graph'), ('graph.#', 'si.completion.started'), ('graph.#', 'orders.created'),
    ('graph.node.created.v1:cognition:*', 'graph.node.created.v1:cognition:utterance'), ('', 'anything.at.all')) AS t (pattern, topic);
-- R001-9, R001-10, R001-13, R001-23, R001-24, R001-26: the topics of changes, in both spellings; any topic as it stands
SELECT name FROM automation.define('q-old', trigger => automation.on_event('graph.node.updated.q_item'), steps => ARRAY[says()]);
SELECT name FROM automation.define('q-all', trigger => automation.on_event('graph.#'), steps => ARRAY[says()]);
SELECT name FROM automation.define('q-new', trigger => automation.on_event('q_item.*'), steps => ARRAY[says()]);
SELECT name FROM automation.define('q-own', trigger => automation.on_event('q.#'), steps => ARRAY[says()]);
INSERT INTO item VALUES (1, 'new', 1, '{"deep": {"er": [1, 2]}}');
UPDATE item SET status = 'paid';
SELECT automation.emit('q.a.b') > 0;
DELETE FROM item;
SELECT happened();
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'q-%';
-- R001-12, R001-22, R001-38: what a run sees of the event, as event and as ctx.input
SELECT name FROM automation.define('q-see', trigger => automation.on_updated('q_item'), steps => ARRAY[
    says('event.id + '' '' + event.kind + '' '' + payload.status + '' '' + (event.changed | json) + '' '' + ctx.input.id + '' '' + (ctx.output | default(''null'')) + '' '' + ctx.error')]);
INSERT INTO item VALUES (1, 'new', 1, '{"deep": {"er": [1, 2]}}');
UPDATE item SET status = 'paid';
SELECT happened();
-- R001-39: what a body writes is attributed to it, with the run behind it
SELECT name FROM automation.define('q-see', trigger => automation.on_updated('q_item', columns => '{status}'), steps => ARRAY[automation.sql('UPDATE item SET n = n + 1')]);
UPDATE item SET status = 'sent';
SELECT automation.drain() > 0;
SELECT e.actor, e.depth, r.automation, r.trigger FROM automation.events AS e JOIN automation.runs AS r ON r.id = e.cause_run WHERE e.kind = 'q_item';
-- R001-29, R001-30, R001-31: a filter over topic, kind and payload, nested paths too; one that fails does not fire
SELECT name FROM automation.define('q-see', trigger => automation.on_updated('q_item', filter => 'event.kind = ''q_item'' and event.topic like ''%.updated'' and new.doc.deep.er[1] = 2'), steps => ARRAY[says()]);
UPDATE item SET n = 10;
SELECT happened();
UPDATE item SET doc = '{}';
SELECT happened();
SELECT name FROM automation.define('q-see', trigger => automation.on_updated('q_item', filter => '1 / (new.n - 11) > 0'), steps => ARRAY[says()]);
UPDATE item SET n = 11;
SELECT happened();
SELECT code, detail FROM automation.log WHERE automation = 'q-see';
-- R001-20, R001-21, R003-23: what is not active is not there
SELECT ok FROM automation.pause('q-see');
UPDATE item SET n = 12;
SELECT happened();
SELECT automation.drop_automation('q-see');
-- R001-4, R001-5, R001-7: one that fails, or changes what it got, harms neither the publisher nor the others
SELECT name FROM automation.define('q-bad', trigger => automation.on_event('q.shared'), steps => ARRAY[automation.sql('SELECT 1 / 0')]);
SELECT name FROM automation.define('q-set', trigger => automation.on_event('q.shared'), steps => ARRAY[automation.set('{"payload": {"a": 2}}'), says('payload.a')]);
SELECT name FROM automation.define('q-get', trigger => automation.on_event('q.shared'), steps => ARRAY[says('payload.a')]);
SELECT automation.emit('q.shared', '{"a": 1}') > 0;
SELECT happened();
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'q-%';
-- R001-33 to R001-37: reusable logic is a function: no run of its own, no event; a missing one is told of when it is defined
CREATE FUNCTION logic(args jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
    PERFORM automation.emit('q.logic', args);
    RETURN jsonb_build_object('twice', (args ->> 'n')::int * 2);
END $$;
SELECT name FROM automation.define('q-call', trigger => automation.on_event('q.call'), steps => ARRAY[
    automation.call('logic', '{"n": payload.n}', id => 'l'), says('steps.l.result.twice | json')]);
SELECT name FROM automation.define('q-hear', trigger => automation.on_event('q.logic'), steps => ARRAY[says()]);
SELECT automation.emit('q.call', '{"n": 21}') > 0;
SELECT happened();
SELECT automation, count(*) FROM automation.runs WHERE automation IN ('q-call', 'q-hear') GROUP BY 1 ORDER BY 1;
SELECT tried($$ SELECT * FROM automation.define('q-none', trigger => automation.on_call(), steps => ARRAY[automation.call('no_logic', '{}')]) $$);
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'q-%';
-- R001-34: variables are bound after those they read, in whatever order they are written
SELECT name FROM automation.define('q-vars', trigger => automation.on_event('q.vars'), steps => ARRAY[
    automation.set('{"b": "{{ vars.a + 1 }}", "a": 1}'), says('vars.b | json')]);
SELECT automation.emit('q.vars') > 0;
SELECT happened();
-- R001-56: an argument's call comes before the member that follows it
SELECT automation.evaluate('coalesce(first([]).id, first([{"id": 7}]).id)');

-- R002-1, R002-3, R002-4: changes and published events; of one event, every active automation whose trigger and filter match
SELECT name FROM automation.define('q-low', trigger => automation.on_created('q_item', filter => 'new.n < 5'), steps => ARRAY[says()]);
SELECT name FROM automation.define('q-any', triggers => ARRAY[automation.on_created('q_item'), automation.on_event('q.mail')], steps => ARRAY[says()]);
INSERT INTO item VALUES (2, 'new', 1), (3, 'new', 9);
SELECT automation.emit('q.mail') > 0;
SELECT happened();
-- R002-5: a run keeps the version and the entity as they were; R002-6, R002-7: a step's end leads to the next
SELECT name FROM automation.define('q-any', trigger => automation.on_created('q_item'), steps => ARRAY[
    automation.wait_signal('q-go', id => 'w'), says('new.status'), says('''then''')]);
INSERT INTO item VALUES (4, 'as it was', 9);
SELECT automation.drain() > 0;
UPDATE item SET status = 'changed' WHERE id = 4;
SELECT version FROM automation.define('q-any', trigger => automation.on_created('q_item'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.signal('q-go') > 0;
SELECT happened();
SELECT seq, step, kind, status FROM automation.run_steps WHERE run_id = (SELECT max(id) FROM automation.runs WHERE automation = 'q-any' AND entity = 'q_item:4');
-- R002-24, R002-25, R004-15: a failed run is seen at its entity with its error, and can be tried again
SELECT name FROM automation.define('q-any', trigger => automation.on_created('q_item'), steps => ARRAY[automation.sql('SELECT 1 / n FROM item WHERE id = {{ new.id }}')]);
INSERT INTO item VALUES (5, 'x', 0);
SELECT automation.drain() > 0;
SELECT automation, status, ended_reason, sqlstate, message FROM automation.runs WHERE entity = 'q_item:5' AND automation = 'q-any';
UPDATE item SET n = 1 WHERE id = 5;
SELECT automation.retry_run(id) > 0 FROM automation.runs WHERE entity = 'q_item:5' AND automation = 'q-any';
SELECT automation.drain() > 0;
SELECT status FROM automation.runs WHERE entity = 'q_item:5' AND automation = 'q-any' ORDER BY id;
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'q-%';

-- R003-11: a branch may go back
SELECT name FROM automation.define('q-back', trigger => automation.on_event('q.back'), steps => ARRAY[
    automation.set('{"n": "{{ (vars.n | default(0)) + 1 }}"}', id => 'count'), automation.branch('vars.n < 3', yes => 'count', no => NULL), says('vars.n | json')]);
SELECT automation.emit('q.back') > 0;
SELECT happened();
-- R003-12, R003-13: pausing leaves a run alone; the step that comes due next cancels it
SELECT name FROM automation.define('q-back', trigger => automation.on_event('q.back'), steps => ARRAY[automation.wait_signal('q-on', id => 'w'), says()]);
SELECT automation.emit('q.back') > 0;
SELECT automation.drain() > 0;
SELECT ok FROM automation.pause('q-back');
SELECT status FROM automation.runs WHERE automation = 'q-back' ORDER BY id DESC LIMIT 1;
SELECT automation.signal('q-on') > 0;
SELECT happened();
SELECT status, ended_reason FROM automation.runs WHERE automation = 'q-back' ORDER BY id DESC LIMIT 1;
SELECT s.step, s.status FROM automation.run_steps AS s WHERE s.run_id = (SELECT max(id) FROM automation.runs WHERE automation = 'q-back');
-- R003-28: a delay before the first step is served before it, and a run is complete behind the last
SELECT name FROM automation.define('q-delay', trigger => automation.on_event('q.delay'), steps => ARRAY[automation.delay('1 day', id => 'd'), says()]);
SELECT automation.set_clock('2030-01-01 12:00+00') IS NOT NULL;
SELECT automation.emit('q.delay') > 0;
SELECT happened();
SELECT automation.advance('23 hours') IS NOT NULL;
SELECT happened();
SELECT automation.advance('2 hours') IS NOT NULL;
SELECT happened();
SELECT automation.set_clock(NULL) IS NULL;
-- R003-27: nobody without the right makes events up, or starts what is another's
CREATE ROLE regress_q;
GRANT USAGE ON SCHEMA req TO regress_q;
SET ROLE regress_q;
SELECT tried($$ SELECT automation.emit('q.back') $$);
RESET ROLE;
SELECT automation.grant_usage('regress_q', 'operator');
SET ROLE regress_q;
SELECT tried($$ SELECT automation.emit('q.back') $$);
SELECT tried($$ SELECT automation.start_with_event('q-delay', '{}') $$);
RESET ROLE;
SELECT automation.revoke_usage('regress_q');
-- R004-6: only what is watched is carried
SELECT automation.unwatch_table('item');
SELECT automation.watch_table('item', kind => 'q_item', columns => '{id,status}');
UPDATE item SET status = 'y', doc = '{"what": "somebody wrote"}' WHERE id = 5;
SELECT next FROM automation.events WHERE kind = 'q_item' ORDER BY id DESC LIMIT 1;
-- R000-31, R004-1, R004-10: one run for each event, automation and trigger, however often it is routed
SELECT automation.drain() >= 0;
SELECT name FROM automation.define('q-once', trigger => automation.on_updated('q_item'), steps => ARRAY[says()]);
UPDATE item SET status = 'z' WHERE id = 5;
SELECT automation.route() > 0, automation.route() = 0;
DO $$ BEGIN
    INSERT INTO automation_internal.dispatch SELECT (jsonb_populate_record(d, jsonb_build_object('id', d.id + 1000))).* FROM automation_internal.dispatch AS d;
EXCEPTION WHEN unique_violation THEN RAISE NOTICE 'twice is refused';
END $$;
SELECT happened();

SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'q-%';
SELECT automation.unwatch_table('item');
SET client_min_messages = warning;
DROP SCHEMA req CASCADE;
DROP OWNED BY regress_q;
DROP ROLE regress_q;
