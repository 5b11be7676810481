-- Entities without a table, and events of one's own.
\set SHOW_CONTEXT never
CREATE SCHEMA entities;
SET search_path = entities, public;
CREATE TABLE mark (last bigint);
INSERT INTO mark SELECT coalesce(max(id), 0) FROM automation.events;
CREATE FUNCTION heard() RETURNS TABLE (topic text, entity_id text, changed text[], prev jsonb, next jsonb)
LANGUAGE sql AS $$
    WITH new AS MATERIALIZED (
             SELECT e.* FROM automation.events AS e WHERE e.id > (SELECT last FROM entities.mark)),
         moved AS (UPDATE entities.mark SET last = greatest(last, (SELECT max(id) FROM new)))
    SELECT n.topic, n.entity_id, n.changed, n.prev, n.next FROM new AS n ORDER BY n.id $$;

-- set_state: the first is a creation, a real difference an update, no difference nothing
SELECT automation.set_state('sensor', 'a1', '{"temp": 20.50, "unit": "C"}') IS NOT NULL AS recorded;
SELECT automation.set_state('sensor', 'a1', '{"unit": "C", "temp": 20.5}') IS NOT NULL AS recorded;
SELECT automation.set_state('sensor', 'a1', '{"temp": 21, "ok": true}') IS NOT NULL AS recorded;
SELECT automation.state('sensor', 'a1');
SELECT * FROM heard();
-- patch_state: fields are merged, null removes one
SELECT automation.patch_state('sensor', 'a1', '{"temp": 12345678901234567890.12345678901234567890, "ok": null}') IS NOT NULL AS recorded;
SELECT automation.patch_state('sensor', 'a1', '{"nothing": null}') IS NOT NULL AS recorded;
SELECT automation.patch_state('sensor', 'b2', '{"temp": 1}') IS NOT NULL AS recorded;
SELECT automation.state('sensor', 'a1'), automation.state('sensor', 'b2');
SELECT * FROM heard();
-- remove_state
SELECT automation.remove_state('sensor', 'b2') IS NOT NULL AS recorded;
SELECT automation.remove_state('sensor', 'b2') IS NOT NULL AS recorded;
SELECT automation.state('sensor', 'b2');
SELECT * FROM heard();
-- rolled back with the transaction and with a savepoint
BEGIN;
SELECT automation.set_state('sensor', 'a1', '{"temp": 0}') IS NOT NULL AS recorded;
SAVEPOINT s;
SELECT automation.remove_state('sensor', 'a1') IS NOT NULL AS recorded;
ROLLBACK TO s;
SELECT automation.state('sensor', 'a1');
COMMIT;
SELECT * FROM heard();
-- refused
SELECT automation.set_state('sensor', 'a1', '[1]');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.patch_state('sensor', 'a1', '1');
SELECT automation.set_state('sensor', '', '{}');
SELECT automation.set_state('a.b', '1', '{}');
SELECT automation.state('nowhere', '1');
\echo :LAST_ERROR_SQLSTATE
CREATE TABLE real (id int PRIMARY KEY, v numeric, at timestamptz);
SELECT automation.watch_table('real');
SELECT automation.set_state('real', '1', '{}');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.watch_table('real', kind => 'sensor');
-- state() of a watched table is its row
INSERT INTO real VALUES (1, 12345678901234567890.12345678901234567890, '2020-01-01 00:00+00');
SELECT automation.state('real', '1'), automation.state('real', '2'), automation.state('real', 'not a number');
-- an empty state is a state
SELECT automation.set_state('flag', 'f', '{}') IS NOT NULL AS recorded;
SELECT automation.set_state('flag', 'f', '{}') IS NOT NULL AS recorded;
SELECT automation.state('flag', 'f');
-- "no field" and "field with null" are the same to expressions, but the state is kept as given
SELECT automation.set_state('flag', 'f', '{"on": null}') IS NOT NULL AS recorded;
SELECT automation.state('flag', 'f');
SELECT count(*) FROM heard();

-- emit
SELECT automation.emit('order.shipped', '{"order": 7, "weight": 1.10}') > 0 AS emitted;
SELECT automation.emit('order.shipped') > 0 AS emitted;
SET automation_engine.actor = 'user:7';
SELECT automation.emit('order.shipped', '[1, null]', tenant => 'acme') > 0 AS emitted;
RESET automation_engine.actor;
SELECT topic, op, kind, entity_id, payload, actor, role, tenant, depth
  FROM automation.events WHERE topic = 'order.shipped' ORDER BY id;
-- a dedup key: the second emission gives the first one's id back
SELECT automation.emit('order.paid', '{"n": 1}', dedup_key => 'k') = automation.emit('order.paid', '{"n": 2}', dedup_key => 'k') AS same;
SELECT automation.emit('order.paid', '{"n": 3}', dedup_key => 'k', tenant => 'acme')
     = automation.emit('order.paid', '{"n": 4}', dedup_key => 'k') AS same_across_tenants;
SELECT automation.emit('order.other', '{"n": 5}', dedup_key => 'k') = automation.emit('order.paid', '{"n": 6}', dedup_key => 'k') AS same_across_topics;
BEGIN;
SELECT automation.emit('order.paid', '{"n": 7}', dedup_key => 'l') > 0 AS emitted;
ROLLBACK;
SELECT automation.emit('order.paid', '{"n": 8}', dedup_key => 'l') > 0 AS emitted;
SELECT topic, payload, tenant, dedup_key FROM automation.events WHERE dedup_key IS NOT NULL ORDER BY id;
-- refused topics
SELECT automation.emit('');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.emit('a..b');
SELECT automation.emit('a b');
SELECT automation.emit('a.*');
SELECT automation.emit('automation.started');
SELECT automation.emit('real.created');
SELECT automation.emit('sensor.updated');
SELECT automation.emit('a', tenant => '_all');
-- a topic that only looks like a change is free
SELECT automation.emit('unknown.created') > 0 AS emitted;

-- topics and filters
SELECT automation.match_topic(p, t), p, t
  FROM (VALUES ('a.b', 'a.b'), ('a.*', 'a.b'), ('a.*', 'a.b.c'), ('a.#', 'a'), ('a.#', 'a.b.c'), ('#', 'x.y'), ('a.b*', 'a.bcd'), ('a.b', 'A.b')) AS v (p, t);
SELECT automation.match_filter('{"/a/b": {"gt": 1}}', '{"a": {"b": 2}}') AS yes, automation.match_filter('{"/a/b": {"gt": 1}}', '{"a": {"b": 1}}') AS no;

SET client_min_messages = warning;
SELECT automation.unwatch_table('real');
DROP SCHEMA entities CASCADE;
