-- What cannot be kept or read is never taken for null in silence: depth and size are limited where a row is captured, and
-- an event that cannot be read is an error of whatever reads it.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE SCHEMA deep;
SET search_path = deep, public;
CREATE FUNCTION lists(levels int) RETURNS jsonb LANGUAGE sql AS $$ SELECT (repeat('[', levels) || repeat(']', levels))::jsonb $$;
CREATE TYPE parcel AS (doc jsonb);
CREATE TYPE crate AS (parcels parcel[]);
CREATE TABLE doc (id int PRIMARY KEY, amount int, b jsonb, j json, l jsonb[], c crate);
CREATE TABLE flagged (id int, whole jsonb);
SELECT automation.watch_table('doc');
SELECT automation.define('deep-flag', trigger => automation.on_created('doc', filter => 'new.amount > 10'),
    steps => ARRAY[automation.sql('INSERT INTO deep.flagged VALUES ({{ new.id }}, {{ new }})')]) IS NOT NULL AS defined;
-- 100 levels are kept, one more is not: in a document, in a list of documents, in a row in a list in a row
INSERT INTO doc VALUES
    (1, 11, lists(100), lists(100)::json, ARRAY[lists(99)], ROW(ARRAY[ROW(lists(97))::parcel])::crate),
    (2, 11, lists(101), NULL, NULL, NULL),
    (3, 11, NULL, lists(101)::text::json, NULL, NULL),
    (4, 11, NULL, NULL, ARRAY['1', lists(100)], NULL),
    (5, 11, NULL, NULL, NULL, ROW(ARRAY[ROW('1')::parcel, ROW(lists(98))::parcel])::crate),
    (6, 11, to_jsonb(repeat('[', 500)), to_json(repeat('"[', 500)), NULL, NULL),
    (7, 11, lists(5000), lists(5000)::json, ARRAY[lists(5000)], ROW(ARRAY[ROW(lists(5000))::parcel])::crate);
UPDATE doc SET amount = 5 WHERE id = 7;
UPDATE doc SET b = lists(5001) WHERE id = 7;
UPDATE doc SET b = lists(1) WHERE id = 7;
DELETE FROM doc WHERE id = 7;
SELECT op, entity_id, truncated, changed, next ? 'b' AS has_b, next -> 'b' <> 'null' AS b, next -> 'j' <> 'null' AS j, next -> 'l' <> 'null' AS l,
       next -> 'c' <> 'null' AS c FROM automation.events WHERE kind = 'doc' ORDER BY id;
SELECT e.entity_id, e.next = to_jsonb(d) AS same FROM automation.events AS e JOIN doc AS d ON d.id::text = e.entity_id
 WHERE e.kind = 'doc' AND NOT e.truncated ORDER BY e.id;
-- no row is hidden from the filter, and each step gets its row
SELECT automation.drain();
SELECT id, whole ->> 'id' AS whole FROM flagged ORDER BY id;
SELECT filtered, filter_errors FROM automation.stat_automations WHERE automation = 'deep-flag';
-- the state of an entity, the same
SELECT automation.state('doc', '1') ->> 'amount' AS amount, automation.state('doc', '2') AS deep;
-- a step's result
SELECT automation.define('deep-result', trigger => automation.on_call(),
    steps => ARRAY[automation.sql('SELECT id, b, j FROM deep.doc WHERE id IN (1, 2) ORDER BY id', id => 'read'),
                   automation.sql('INSERT INTO deep.flagged VALUES ({{ steps.read.rows[1].id }}, {{ steps.read.truncated }})')]) IS NOT NULL AS defined;
SELECT automation.start_run('deep-result') > 0 AS started;
SELECT automation.drain();
SELECT status, ended_reason FROM automation.runs WHERE automation = 'deep-result';
SELECT * FROM flagged WHERE whole = 'true';
-- rows of a backfill that cannot be kept fail alone
SELECT automation.backfill('deep-flag', 'SELECT id, amount, b FROM deep.doc WHERE id IN (1, 2) ORDER BY id') > 0 AS begun;
SELECT automation.drain() > 0 AS ran;
SELECT no, status, error FROM automation.bulk_items WHERE job = (SELECT max(job) FROM automation.bulk_items) ORDER BY no;

-- an event in the log that cannot be read: an error of the filter, counted and told, not a row of nulls
TRUNCATE flagged;
BEGIN;
INSERT INTO doc VALUES (8, 11, NULL, NULL, NULL, NULL);
SET LOCAL search_path = deep;
UPDATE automation_internal.event SET next = replace(next::text, '"b":null', '"b":' || repeat('[', 300) || repeat(']', 300))::json
 WHERE id = (SELECT max(id) FROM automation_internal.event);
SELECT automation.define('deep-row', trigger => automation.on_created('doc'),
    steps => ARRAY[automation.sql('INSERT INTO deep.flagged VALUES ({{ new.id }}, {{ new }})')]) IS NOT NULL AS defined;
SELECT automation.define('deep-null', trigger => automation.on_created('doc', filter => 'new.b is null'),
    steps => ARRAY[automation.sql('INSERT INTO deep.flagged VALUES (0, null)')]) IS NOT NULL AS defined;
SELECT automation.define('deep-state', trigger => automation.on_state('doc', 'b'),
    steps => ARRAY[automation.sql('INSERT INTO deep.flagged VALUES (0, null)')]) IS NOT NULL AS defined;
SELECT automation.drain() > 0 AS ran;
SELECT automation, matched, filtered, filter_errors FROM automation.stat_automations WHERE automation LIKE 'deep-%' ORDER BY 1;
SELECT code, automation, message, detail FROM automation.log WHERE automation LIKE 'deep-%' ORDER BY automation, code;
SELECT status, error FROM automation.runs WHERE automation = 'deep-row';
SELECT * FROM flagged;
ROLLBACK;

-- rows that move between partitions are as exact, whatever cannot be kept of them
CREATE TABLE moving (id int, k int, v text, n numeric, d jsonb, l numeric[]) PARTITION BY LIST (k);
CREATE TABLE moving_1 PARTITION OF moving FOR VALUES IN (1);
CREATE TABLE moving_2 (l numeric[], d jsonb, gone int, n numeric, v text, k int, id int);
ALTER TABLE moving_2 DROP COLUMN gone;
ALTER TABLE moving ATTACH PARTITION moving_2 FOR VALUES IN (2);
SELECT automation.watch_table('moving', id_columns => '{id}', ignore => '{k}');
INSERT INTO moving VALUES (1, 1, repeat('x', 70000), 1.0, lists(300), '{1.0,NULL}');
-- nothing that is watched changes, in spite of other spellings
UPDATE moving SET k = 2, n = 1.00, l = '{1.00,NULL}';
UPDATE moving SET k = 1, v = repeat('y', 70000);
UPDATE moving SET k = 2, d = lists(301);
UPDATE moving SET k = 1, d = lists(2), v = 'short';
UPDATE moving SET k = 2, l = '{1}';
-- of an update that moves the row, the events of a trigger, and the deletion of a row that is refused, the order is that of the commands
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER refuse BEFORE INSERT ON moving_1 FOR EACH ROW EXECUTE FUNCTION refuse();
BEGIN;
UPDATE moving SET k = 1;
SAVEPOINT s;
INSERT INTO moving VALUES (2, 2, 'rolled back', 2, NULL, NULL);
ROLLBACK TO s;
INSERT INTO moving VALUES (3, 2, 'stays', 3, NULL, NULL);
COMMIT;
WITH moved AS (UPDATE moving SET k = 1 RETURNING id) SELECT count(*) FROM moved;
SELECT op, entity_id, truncated, changed, left(prev::text, 60) AS prev, left(next::text, 60) AS next FROM automation.events WHERE kind = 'moving' ORDER BY id;

-- documents that are given to the engine
SELECT automation.signal('deep', lists(128));
\echo :LAST_ERROR_SQLSTATE
SELECT automation.set_state('deep_box', '1', jsonb_build_object('a', lists(126))) > 0 AS kept;
SELECT automation.patch_state('deep_box', '1', jsonb_build_object('b', lists(127)));
\echo :LAST_ERROR_SQLSTATE
SELECT automation.patch_state('deep_box', '1', '{"b": 1}') > 0 AS kept;
SELECT changed FROM automation.events WHERE kind = 'deep_box' ORDER BY id;
SELECT automation.remove_state('deep_box', '1') > 0 AS removed;
-- the limit of a value has one itself
SELECT min_val, max_val, unit FROM pg_settings WHERE name = 'automation_engine.max_value_size';

SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'deep-%';
SELECT bool_and(automation.unwatch_table(t)) FROM unnest('{doc,moving}'::regclass[]) AS t;
DROP SCHEMA deep CASCADE;
