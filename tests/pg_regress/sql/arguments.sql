-- Arguments that nobody sends on purpose are refused with words for their sender. tests/e2e/tests/odd_calls.rs sends many more.
\set SHOW_CONTEXT never
CREATE SCHEMA arguments;
SET search_path = arguments, public;
CREATE TABLE item (id int PRIMARY KEY, note text, tags jsonb);

-- lists with nulls in them, and relations that are not there
SELECT automation.watch_table(NULL);
SELECT automation.watch_table('item', kind => 'a_item', id_columns => '{id,NULL}');
SELECT automation.watch_table('item', kind => 'a_item', columns => '{NULL}');
SELECT automation.watch_table('item', kind => 'a_item', ignore => '{NULL}');
SELECT automation.watch_table('item', kind => 'a_item', ignore => NULL);
SELECT automation.watch_table(4294967295::oid::regclass);
SELECT automation.watch_table(0::regclass);
SELECT automation.unwatch_table(4294967295::oid::regclass);
SELECT automation.unwatch_table(NULL) IS NULL AS nothing;

-- documents that are nested deeper than ours can be
SELECT automation.signal('a_signal', payload => (repeat('[', 128) || repeat(']', 128))::jsonb);
-- what succeeds here is undone: other tests count signals and events
BEGIN;
SELECT automation.signal('a_signal', payload => NULL) > 0 AS sent;
ROLLBACK;
INSERT INTO item VALUES (1, 'deep', (repeat('[', 200) || repeat(']', 200))::jsonb);
SELECT automation.state('a_item', '1');
SELECT automation.evaluate('[[payload]]', jsonb_build_object('payload', (repeat('[', 126) || repeat(']', 126))::jsonb));

-- keys that no index could hold
SELECT automation.emit(NULL);
BEGIN;
SELECT automation.emit('a.topic', NULL) > 0 AS emitted;
SELECT automation.emit('a.topic', dedup_key => string_agg(md5(n::text), ''), tenant => repeat('t', 200)) > 0 AS emitted
  FROM generate_series(1, 31) AS n;
ROLLBACK;
SELECT automation.emit('a.topic', dedup_key => repeat('k', 1001));
SELECT automation.emit('a.topic', tenant => repeat('t', 201));
SELECT automation.signal('a_signal', tenant => repeat('t', 201));

-- the engine's own actors are for nobody else
SET automation_engine.actor = 'system:automation:big-order';
SET automation_engine.actor = '  SysTem:schedule';
SELECT set_config('automation_engine.actor', 'system:', true);
ALTER DATABASE regression SET automation_engine.actor = 'system:x';
SET automation_engine.actor = 'systematic';
SELECT automation.emit('a.by_hand') > 0 AS emitted;
SET automation_engine.actor = 'user:system:1';
SELECT automation.emit('a.by_hand') > 0 AS emitted;
RESET automation_engine.actor;
SELECT topic, actor FROM automation.events WHERE topic = 'a.by_hand' ORDER BY id;
SELECT name FROM automation.define('a-actor', trigger => automation.on_event('a.go'), steps => ARRAY[automation.publish('a.gone', '{}')]);
SELECT automation.emit('a.go') > 0 AS emitted;
SELECT automation.drain() > 0 AS ran;
SELECT topic, actor FROM automation.events WHERE topic = 'a.gone';
SELECT automation.drop_automation('a-actor');
SELECT automation.unwatch_table('item');
DROP SCHEMA arguments CASCADE;
