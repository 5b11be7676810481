-- Behaviours of the first source document (the reactive dispatch pipeline) that no test elsewhere shows.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv srcdir PG_ABS_SRCDIR
\set show :srcdir '/check/show.sql'
SET timezone = 'UTC';
CREATE SCHEMA rea;
SET search_path = rea, public;
\i :show
CREATE TABLE item (id int PRIMARY KEY, status text, n int);
CREATE TABLE effect (seq serial, what text);
SELECT automation.watch_table('item', kind => 'a_item');

-- R000-3: only a change makes the event of a change; nobody publishes it, derives it or sets the state of a table's kind
SELECT tried($$ SELECT automation.emit('a_item.updated') $$);
SELECT tried($$ SELECT automation.emit('graph.node.updated.a_item') $$);
SELECT tried($$ SELECT automation.derive_event('a_item', 'a_item.deleted', 'true') $$);
SELECT tried($$ SELECT automation.set_state('a_item', '1', '{"status": "made up"}') $$);
SELECT tried($$ SELECT * FROM automation.define('a-lie', trigger => automation.on_call(), steps => ARRAY[automation.publish('a_item.updated')]) $$);

-- R000-10: what an event carries when an entity is created, changed and removed; delta has the new values of what changed
SELECT name FROM automation.define('a-see', trigger => automation.on_changed('a_item'), steps => ARRAY[automation.sql($$
    INSERT INTO effect (what) VALUES (concat_ws(' | ', {{ event.topic }}, {{ event.kind }}, {{ event.id }}, 'prev ' || {{ event.prev | json }}, 'next ' || {{ event.next | json }},
        'delta ' || {{ event.delta | json }}, 'changed ' || {{ event.changed | json }}, {{ event.actor }}, {{ event.occurred_at }}::timestamptz = (SELECT occurred_at FROM automation.events WHERE id = {{ event.event_id }}::bigint))) $$)]);
SET automation_engine.actor = 'user:42';
INSERT INTO item VALUES (1, 'new', 7);
UPDATE item SET status = 'paid';
UPDATE item SET status = 'sent', n = NULL;
DELETE FROM item;
RESET automation_engine.actor;
SELECT automation.drain() > 0;
SELECT what FROM effect ORDER BY seq;
TRUNCATE effect;
SELECT automation.drop_automation('a-see');

-- R000-6: routing orders work and does none; R000-11: an order says why, of which automation, for which event and run
SELECT name FROM automation.define('a-work', trigger => automation.on_created('a_item'), steps => ARRAY[
    automation.sql($$ INSERT INTO effect (what) VALUES ('created ' || {{ new.id }}) $$), automation.wait_until('state.a_item[new.id].status = "go"', timeout => '1 hour', id => 'w'),
    automation.sql($$ INSERT INTO effect (what) VALUES ('gone on ' || {{ new.id }}) $$)]);
INSERT INTO item VALUES (2, 'new', 0);
SELECT automation.route() > 0;
SELECT d.automation, d.reason, d.attempt, d.run_id > 0 AS numbered, e.topic, e.entity_id FROM automation.dispatches AS d JOIN automation.events AS e ON e.id = d.event_id;
SELECT count(*) AS effects FROM effect;
SELECT automation.drain() > 0;
SELECT what FROM effect ORDER BY seq;

-- R000-13, R000-25: a wait is one row for each entity it depends on, found by its index, and one timer at its deadline
SELECT w.source, w.kind, w.entity_id FROM automation_internal.wake_index AS w JOIN automation.runs AS r ON r.id = w.run_id WHERE r.automation = 'a-work';
SELECT t.reason, t.due_at = w.deadline AS at_its_deadline, w.deadline - w.since AS after FROM automation.timers AS t JOIN automation.waiting AS w ON w.run_id = t.run_id
 WHERE t.automation = 'a-work' AND t.reason <> 'arm';
-- R000-15: the columns that a change is looked up by lead an index
SELECT string_agg(a.attname, ', ' ORDER BY k.place)
  FROM pg_index AS i CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place) JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.number
 WHERE i.indrelid = 'automation_internal.wake_index'::regclass AND k.place <= 3 GROUP BY i.indexrelid HAVING bool_or(a.attname = 'entity_id');
-- R000-11: a wake names the run that waits; R000-13: nothing of the wait is left behind it
UPDATE item SET status = 'go' WHERE id = 2;
SELECT automation.route() > 0;
SELECT d.automation, d.reason, d.run_id = r.id AS of_the_run, r.status FROM automation.dispatches AS d JOIN automation.runs AS r ON r.automation = 'a-work';
SELECT automation.drain() > 0;
SELECT what FROM effect ORDER BY seq;
SELECT (SELECT count(*) FROM automation_internal.wake_index) AS refs, (SELECT count(*) FROM automation_internal.timer) AS timers;

-- R000-29: no trigger asks for a condition again and again
SELECT tried($$ SELECT path, sqlstate, message, hint FROM automation.validate('{"name": "a-poll", "trigger": {"on": "template", "value": "state.a_item.2.n > 1"}, "steps": [{"do": "sql", "sql": "SELECT 1"}]}') $$);

SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'a-%';
SELECT automation.unwatch_table('item');
SET client_min_messages = warning;
DROP SCHEMA rea CASCADE;
