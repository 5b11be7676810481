-- Starting a run as if an event had happened: the same shape (R001-52), the same event twice is one run for ten minutes
-- (R001-41); by hand nothing is a duplicate (R001-51); by a step the topic is automation.invocation.<name> (R001-53).
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv srcdir PG_ABS_SRCDIR
\set show :srcdir '/check/show.sql'
SET timezone = 'UTC';
CREATE SCHEMA swe;
SET search_path = swe, public;
\i :show
CREATE TABLE item (id int PRIMARY KEY, status text, n int);
CREATE TABLE effect (seq serial, what text);
SELECT automation.watch_table('item', kind => 'w_item');
CREATE FUNCTION happened() RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM automation.drain();
    RETURN QUERY SELECT what FROM swe.effect ORDER BY seq;
    DELETE FROM swe.effect;
END $$;
SELECT automation.set_clock('2030-01-01 12:00+00');
SELECT name FROM automation.define('w-see', trigger => automation.on_updated('w_item'), steps => ARRAY[automation.sql($$
    INSERT INTO effect (what) VALUES ({{ event.topic }} || ' ' || {{ event.op }} || ' ' || {{ event.id | default('-') }} || ' from ' || {{ old.status | default('-') }}
        || ' to ' || {{ new.status | default('-') }} || ' changed ' || {{ event.changed | json }} || ' payload ' || {{ payload | json }}
        || ' by ' || {{ trigger.id }}) $$)]);
-- an update, in full (R001-52)
SELECT automation.start_with_event('w-see', '{"kind": "w_item", "id": 7, "prev": {"id": 7, "status": "new", "n": 1}, "next": {"id": 7, "status": "paid", "n": 1}}') AS run \gset
SELECT happened();
SELECT status, entity, trigger, event_id IS NOT NULL FROM automation.runs WHERE id = :run;
-- the same again, written in another order, is the same run; another is another (R001-41, R001-52)
SELECT automation.start_with_event('w-see', '{"next": {"n": 1, "status": "paid", "id": 7}, "kind": "w_item", "id": "7", "old": {"id": 7, "status": "new", "n": 1}}') = :run AS same;
SELECT happened();
SELECT automation.start_with_event('w-see', '{"kind": "w_item", "id": 7, "next": {"id": 7, "status": "paid"}}') <> :run AS another;
SELECT happened();
-- but not for ever (R001-41: ten minutes)
SELECT automation.advance('11 minutes') IS NOT NULL;
SELECT automation.start_with_event('w-see', '{"kind": "w_item", "id": 7, "prev": {"id": 7, "status": "new", "n": 1}, "next": {"id": 7, "status": "paid", "n": 1}}') <> :run AS another;
SELECT happened();
-- nor after a rollback (R001-44)
BEGIN;
SELECT automation.start_with_event('w-see', '{"topic": "w.never", "payload": {"a": 1}}') > 0;
ROLLBACK;
SELECT automation.start_with_event('w-see', '{"topic": "w.never", "payload": {"a": 1}}') > 0;
SELECT happened();
-- created, deleted, of no kind, with no topic; what a row of automation.events has
SELECT automation.start_with_event('w-see', '{"kind": "w_item", "id": 8, "new": {"status": "new"}}') > 0;
SELECT automation.start_with_event('w-see', '{"kind": "w_item", "id": 8, "old": {"status": "new"}}') > 0;
SELECT automation.start_with_event('w-see', '{}') > 0;
INSERT INTO item VALUES (1, 'new', 1);
UPDATE item SET status = 'sold';
SELECT happened();
SELECT automation.start_with_event('w-see', to_jsonb(e)) > 0 FROM automation.events AS e WHERE e.kind = 'w_item' AND e.op = 'updated';
SELECT happened();
-- start_run() is never a duplicate (R001-51)
SELECT automation.start_run('w-see', '{"a": 1}') <> automation.start_run('w-see', '{"a": 1}') AS two;
SELECT happened();
-- a run that waits, fails and is tried again keeps the event
SELECT name FROM automation.define('w-wait', trigger => automation.on_updated('w_item'), steps => ARRAY[
    automation.delay('1 hour'),
    automation.sql($$ INSERT INTO effect (what) VALUES ({{ event.topic }} || ' ' || {{ new.status }}) $$, id => 'say'),
    automation.sql($$ SELECT 1 / count(*) FROM effect WHERE what = 'please' $$)]);
SELECT automation.start_with_event('w-wait', '{"kind": "w_item", "id": 9, "topic": "w.special", "next": {"status": "late"}}') AS run \gset
SELECT happened();
SELECT automation.advance('2 hours') IS NOT NULL;
SELECT happened();
SELECT told(:run);
SELECT automation.retry_run(:run, from_step => 'say') > 0;
SELECT happened();
-- refused
SELECT tried($$ SELECT automation.start_with_event('nothing', '{}') $$);
SELECT tried($$ SELECT automation.start_with_event('w-see', '[]') $$);
SELECT tried($$ SELECT automation.start_with_event('w-see', '{"topik": "a"}') $$);
SELECT tried($$ SELECT automation.start_with_event('w-see', '{"colour": "red"}') $$);
SELECT tried($$ SELECT automation.start_with_event('w-see', '{"kind": "w_item", "id": 1}') $$);
SELECT tried($$ SELECT automation.start_with_event('w-see', '{"next": {"a": 1}}') $$);
SELECT tried($$ SELECT automation.start_with_event('w-see', '{"kind": "w_item", "next": 3}') $$);
SELECT tried($$ SELECT automation.start_with_event('w-see', '{"topic": "a.*"}') $$);
SELECT tried($$ SELECT automation.start_with_event('w-see', '{"topic": "a..b"}') $$);
SELECT tried($$ SELECT automation.start_with_event('w-see', '{"topic": {}}') $$);
SELECT tried($$ SELECT automation.start_with_event('w-see', '{"tenant": "_system"}') $$);
SELECT name FROM automation.define('w-acme', trigger => automation.on_call(), tenant => 'acme', steps => ARRAY[
    automation.sql($$ INSERT INTO effect (what) VALUES ('tenant ' || {{ event.tenant }}) $$)]);
SELECT tried($$ SELECT automation.start_with_event('w-acme', '{"tenant": "other"}') $$);
SELECT automation.start_with_event('w-acme', '{"topic": "w.x"}') > 0;
SELECT happened();
SELECT ok FROM automation.pause('w-acme');
SELECT tried($$ SELECT automation.start_with_event('w-acme', '{"topic": "w.x"}') $$);
-- a step that runs another automation (R001-53)
SELECT name FROM automation.define('w-sub', trigger => automation.on_call(), steps => ARRAY[
    automation.sql($$ INSERT INTO effect (what) VALUES ({{ event.topic }} || ' ' || {{ payload.a }}) $$)]);
SELECT name FROM automation.define('w-top', trigger => automation.on_call(), steps => ARRAY[automation.run('w-sub', '{"a": 3}')]);
SELECT automation.start_run('w-top') > 0;
SELECT happened();
SELECT automation.set_clock(NULL) IS NULL;
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'w-%';
SELECT automation.unwatch_table('item');
SET client_min_messages = warning;
DROP SCHEMA swe CASCADE;
