-- Which relations can be watched, what identifies a row, and partitioned tables.
\set SHOW_CONTEXT never
CREATE SCHEMA relations;
SET search_path = relations, public;
CREATE TABLE mark (last bigint);
INSERT INTO mark SELECT coalesce(max(id), 0) FROM automation.events;
CREATE FUNCTION heard() RETURNS TABLE (topic text, entity_id text, changed text[], prev jsonb, next jsonb)
LANGUAGE sql AS $$
    WITH new AS MATERIALIZED (
             SELECT e.* FROM automation.events AS e WHERE e.id > (SELECT last FROM relations.mark)),
         moved AS (UPDATE relations.mark SET last = greatest(last, (SELECT max(id) FROM new)))
    SELECT n.topic, n.entity_id, n.changed, n.prev, n.next FROM new AS n ORDER BY n.id $$;

-- refused, each with what to do instead
CREATE TABLE plain (id int PRIMARY KEY, v text);
CREATE VIEW a_view AS SELECT * FROM plain;
CREATE MATERIALIZED VIEW a_matview AS SELECT * FROM plain;
CREATE TEMPORARY TABLE a_temp (id int PRIMARY KEY);
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent);
CREATE TABLE no_key (id int, v text);
CREATE SEQUENCE a_sequence;
CREATE FOREIGN DATA WRAPPER relations_wrapper;
CREATE SERVER relations_server FOREIGN DATA WRAPPER relations_wrapper;
CREATE FOREIGN TABLE a_foreign (id int) SERVER relations_server;
CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
SELECT automation.watch_table('a_view');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.watch_table('a_matview');
DO $$
BEGIN
    PERFORM automation.watch_table('a_temp');
EXCEPTION WHEN wrong_object_type THEN
    RAISE NOTICE '%', regexp_replace(sqlerrm, 'pg_temp_\d+', 'pg_temp');
END $$;
SELECT automation.watch_table('parent');
SELECT automation.watch_table('a_foreign');
SELECT automation.watch_table('a_sequence');
SELECT automation.watch_table('plain_pkey');
SELECT automation.watch_table('parts_1');
SELECT automation.watch_table('pg_class');
SELECT automation.watch_table('automation_internal.event');
SELECT automation.watch_table('no_key');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.watch_table('not_there');
SELECT automation.watch_table('plain', columns => '{w}');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.watch_table('plain', id_columns => '{idd}');
SELECT automation.watch_table('plain', ignore => '{id}');
SELECT automation.watch_table('plain', tenant_column => 'vv');
SELECT automation.watch_table('plain', kind => 'a.b');
SELECT automation.watch_table('plain', kind => '');
SELECT automation.watch_table('plain', kind => 'automation');
SELECT automation.watch_table('plain', kind => '*');
-- a kind has one table
SELECT automation.watch_table('plain', kind => 'thing');
SELECT automation.watch_table('child', kind => 'thing');
\echo :LAST_ERROR_SQLSTATE
-- a child can be watched; an inheritance parent whose children are gone, too
SELECT automation.watch_table('child');
INSERT INTO child VALUES (1);
DROP TABLE child;
SELECT automation.watch_table('parent');
INSERT INTO parent VALUES (2);
SELECT * FROM heard();
-- a table without a primary key, by columns that somebody vouches for
SELECT automation.watch_table('no_key', id_columns => '{id}');
INSERT INTO no_key VALUES (1, 'a');
UPDATE no_key SET v = 'b';
DELETE FROM no_key;
SELECT * FROM heard();
-- quoting
CREATE TABLE "Odd ""Name" ("The Id" text PRIMARY KEY, "ü;--" int);
SELECT automation.watch_table('"Odd ""Name"', kind => 'odd');
INSERT INTO "Odd ""Name" VALUES (E'it''s "1"\\\n', 1);
UPDATE "Odd ""Name" SET "ü;--" = 2;
SELECT * FROM heard();
SELECT automation.state('odd', E'it''s "1"\\\n');
-- an unlogged table can be watched: its events are not lost with it
CREATE UNLOGGED TABLE quick (id int PRIMARY KEY);
SELECT automation.watch_table('quick');
INSERT INTO quick VALUES (1);
SELECT * FROM heard();
-- a dropped table leaves its kind free for another
DROP TABLE quick;
CREATE TABLE quick (id int PRIMARY KEY, v int);
SELECT automation.watch_table('quick');
INSERT INTO quick VALUES (2, 2);
SELECT * FROM heard();

-- keys of other types, and keys of several columns in the order of the table
CREATE TABLE by_uuid (id uuid PRIMARY KEY);
CREATE TABLE by_text (id text PRIMARY KEY, v int);
CREATE TABLE by_time (id timestamptz PRIMARY KEY);
CREATE TABLE by_number (id numeric PRIMARY KEY, v int);
CREATE TABLE by_two (a int, b text, v int, PRIMARY KEY (b, a));
SELECT automation.watch_table(t) FROM unnest('{by_uuid,by_text,by_time,by_number,by_two}'::regclass[]) AS t;
INSERT INTO by_uuid VALUES ('A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11');
INSERT INTO by_text VALUES ('ünïcode "quoted"', 1), ('', 2);
INSERT INTO by_time VALUES ('2020-02-29 12:00:00.123456+02');
INSERT INTO by_number VALUES (1.50, 1), (123456789012345678901234567890.5, 2);
INSERT INTO by_two VALUES (1, 'x,"y"', 1);
SELECT topic, entity_id FROM heard();
-- the id of an event finds the row again
SELECT automation.state(e.kind, e.entity_id) = e.next AS same, e.entity_id
  FROM automation.events AS e WHERE e.kind LIKE 'by\_%' ORDER BY e.id;
-- equal keys of different spelling are one entity
UPDATE by_number SET id = 1.5 WHERE v = 1;
UPDATE by_number SET v = 3 WHERE v = 1;
SELECT topic, entity_id, changed FROM heard();
-- one column of a key of two changes
UPDATE by_two SET a = 2;
SELECT topic, entity_id FROM heard();

-- partitions, two levels; one of them lays out its columns in another order
CREATE TABLE event_log (id int, region text, at date, amount numeric, note text, PRIMARY KEY (id, region, at)) PARTITION BY LIST (region);
CREATE TABLE event_log_eu PARTITION OF event_log FOR VALUES IN ('eu') PARTITION BY RANGE (at);
CREATE TABLE event_log_eu_1 PARTITION OF event_log_eu FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
CREATE TABLE event_log_eu_2 (note text, gone int, amount numeric, at date NOT NULL, id int NOT NULL, region text NOT NULL);
ALTER TABLE event_log_eu_2 DROP COLUMN gone;
ALTER TABLE event_log_eu ATTACH PARTITION event_log_eu_2 FOR VALUES FROM ('2021-01-01') TO ('2022-01-01');
CREATE TABLE event_log_us PARTITION OF event_log DEFAULT;
SELECT automation.watch_table('event_log', kind => 'entry', id_columns => '{id}');
INSERT INTO event_log VALUES (1, 'eu', '2020-05-05', 1.10, 'one'), (2, 'eu', '2021-05-05', 2.20, 'two'), (3, 'us', '2020-05-05', 3.30, 'three');
SELECT topic, entity_id, next FROM heard();
-- written directly
INSERT INTO event_log_us VALUES (4, 'jp', '2020-01-01', 4, 'four');
INSERT INTO event_log_eu VALUES (5, 'eu', '2021-01-01', 5, 'five');
UPDATE event_log_eu_2 SET note = 'direct' WHERE id = 5;
DELETE FROM event_log_us WHERE id = 4;
SELECT * FROM heard();
-- a row that moves is one update
UPDATE event_log SET region = 'us' WHERE id = 1;
SELECT * FROM heard();
UPDATE event_log SET at = '2021-06-06', region = 'eu' WHERE id = 1;
SELECT * FROM heard();
UPDATE event_log_eu SET at = '2020-06-06', note = 'moved' WHERE id IN (1, 2);
SELECT * FROM heard();
-- without the loss of a digit
INSERT INTO event_log VALUES (6, 'eu', '2020-05-05', 12345678901234567890.12345678901234567890, '6');
UPDATE event_log SET at = '2021-05-05', amount = 12345678901234567890.12345678901234567891 WHERE id = 6;
SELECT * FROM heard();
-- several rows move at once, some of them change their id as well
UPDATE event_log SET region = 'us', id = CASE WHEN id = 6 THEN 60 ELSE id END;
SELECT topic, entity_id, changed FROM heard() ORDER BY entity_id, topic DESC;
-- a move that is taken back leaves nothing behind that could be mistaken for half a move later
BEGIN;
SAVEPOINT s;
UPDATE event_log SET region = 'eu', at = '2020-01-01' WHERE id = 1;
ROLLBACK TO s;
DELETE FROM event_log WHERE id = 1;
INSERT INTO event_log VALUES (1, 'us', '2020-01-01', 0, 'again');
COMMIT;
SELECT topic, entity_id, changed FROM heard();
-- the row never arrives: a trigger of the target refuses it, so it is gone
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER refuse BEFORE INSERT ON event_log_eu_1 FOR EACH ROW EXECUTE FUNCTION refuse();
UPDATE event_log SET region = 'eu', at = '2020-01-01' WHERE id = 1;
SELECT count(*) FROM event_log WHERE id = 1;
SELECT topic, entity_id, changed FROM heard();
-- the same, and in the same transaction a row with that id is made: two events, not one
INSERT INTO event_log VALUES (1, 'us', '2020-01-01', 0, 'again');
SELECT topic, entity_id, changed FROM heard();
BEGIN;
UPDATE event_log SET region = 'eu', at = '2020-01-01' WHERE id = 1;
INSERT INTO event_log VALUES (1, 'us', '2020-01-01', 0, 'again');
COMMIT;
SELECT topic, entity_id, changed FROM heard();
-- the same, but taken back first
BEGIN;
SAVEPOINT s;
UPDATE event_log SET region = 'eu', at = '2020-01-01' WHERE id = 1;
ROLLBACK TO s;
DELETE FROM event_log WHERE id = 1;
INSERT INTO event_log VALUES (1, 'us', '2020-01-01', 0, 'again');
COMMIT;
SELECT topic, entity_id, changed FROM heard();
DROP TRIGGER refuse ON event_log_eu_1;
-- a trigger behind ours fails the move after we have seen its first half
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
CREATE TRIGGER zz_fail AFTER DELETE ON event_log_us FOR EACH ROW EXECUTE FUNCTION fail();
BEGIN;
SAVEPOINT s;
UPDATE event_log SET region = 'eu', at = '2020-01-01' WHERE id = 1;
ROLLBACK TO s;
INSERT INTO event_log VALUES (1, 'us', '2020-01-02', 0, 'second row of that id');
COMMIT;
SELECT topic, entity_id, changed FROM heard();
DROP TRIGGER zz_fail ON event_log_us;
-- a partition attached later is watched, a detached one is not
CREATE TABLE event_log_jp (LIKE event_log);
DELETE FROM event_log WHERE region = 'jp';
ALTER TABLE event_log ATTACH PARTITION event_log_jp FOR VALUES IN ('jp');
INSERT INTO event_log VALUES (7, 'jp', '2020-01-01', 0, '');
SELECT topic, entity_id FROM heard();
ALTER TABLE event_log DETACH PARTITION event_log_jp;
INSERT INTO event_log_jp VALUES (8, 'jp', '2020-01-01', 0, '');
SELECT topic, entity_id FROM heard();
-- the owner of a watched table needs no right in the engine to create, attach and detach partitions
CREATE ROLE regress_relations;
GRANT USAGE, CREATE ON SCHEMA relations TO regress_relations;
ALTER TABLE event_log OWNER TO regress_relations;
SET ROLE regress_relations;
CREATE TABLE event_log_cn PARTITION OF event_log FOR VALUES IN ('cn');
CREATE TABLE event_log_kr PARTITION OF event_log FOR VALUES IN ('kr') PARTITION BY RANGE (at);
CREATE TABLE event_log_kr_1 (LIKE event_log);
ALTER TABLE event_log_kr ATTACH PARTITION event_log_kr_1 FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
INSERT INTO event_log VALUES (20, 'cn', '2020-01-01', 0, ''), (21, 'kr', '2020-01-01', 0, '');
UPDATE event_log SET region = 'cn' WHERE id = 21;
CREATE TRIGGER mine AFTER INSERT ON event_log_cn FOR EACH ROW EXECUTE FUNCTION automation_internal.capture_change('{"kind":"x","id":["id"]}');
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
SELECT topic, entity_id, changed FROM heard();
-- what is not captured below it is reported
SELECT item, status, detail FROM automation.status() WHERE item = 'kind entry';
ALTER TABLE event_log_kr_1 DISABLE TRIGGER "!automation_engine";
SELECT item, status, detail FROM automation.status() WHERE item = 'kind entry';
ALTER TABLE event_log_kr_1 ENABLE REPLICA TRIGGER "!automation_engine";
SELECT item, status, detail FROM automation.status() WHERE item = 'kind entry';
ALTER TABLE event_log_kr_1 ENABLE TRIGGER "!automation_engine";
SET ROLE regress_relations;
ALTER TABLE event_log DETACH PARTITION event_log_cn;
INSERT INTO event_log_cn VALUES (22, 'cn', '2020-01-01', 0, '');
RESET ROLE;
SELECT topic, entity_id FROM heard();
SELECT item, status, detail FROM automation.status() WHERE item = 'kind entry' OR item LIKE '%event_log_cn%';
-- a trigger of ours on a table that is not watched, as a superuser could leave behind
CREATE TRIGGER "!automation_engine" AFTER INSERT ON event_log_cn FOR EACH ROW EXECUTE FUNCTION automation_internal.capture_change('{"kind":"entry","id":["id"]}');
SELECT item, status, detail FROM automation.status() WHERE item LIKE '%event_log_cn%';
DROP TABLE event_log_cn, event_log_kr;
-- outside a trigger the function does nothing
SELECT automation_internal.capture_change();
\echo :LAST_ERROR_SQLSTATE
ALTER TABLE event_log OWNER TO CURRENT_USER;
DROP OWNED BY regress_relations;
DROP ROLE regress_relations;
-- TRUNCATE is one event, however many partitions there are
TRUNCATE event_log;
SELECT topic, entity_id FROM heard();
SELECT automation.unwatch_table('event_log');
INSERT INTO event_log VALUES (9, 'eu', '2020-01-01', 0, '');
SELECT topic, entity_id FROM heard();
SELECT count(*) FROM pg_trigger WHERE tgname LIKE '!%' AND tgrelid::regclass::text LIKE 'event\_log%';

-- a table with row security gives no more than the key: not every reader of the log may see the row
CREATE TABLE secret (id int PRIMARY KEY, v text);
ALTER TABLE secret ENABLE ROW LEVEL SECURITY;
SELECT automation.watch_table('secret');
INSERT INTO secret VALUES (1, 'hush');
UPDATE secret SET v = 'still';
SELECT * FROM heard();
-- also when it moves to another partition
CREATE TABLE secret_regions (id int, region text, v text) PARTITION BY LIST (region);
CREATE TABLE secret_regions_eu PARTITION OF secret_regions FOR VALUES IN ('eu');
CREATE TABLE secret_regions_us PARTITION OF secret_regions FOR VALUES IN ('us');
ALTER TABLE secret_regions ENABLE ROW LEVEL SECURITY;
SELECT automation.watch_table('secret_regions', id_columns => '{id}');
INSERT INTO secret_regions VALUES (1, 'eu', 'hush');
UPDATE secret_regions SET region = 'us', v = 'still';
SELECT * FROM heard();
DROP TABLE secret_regions;
-- a value that is left out for its size may be what changed
CREATE TABLE large_regions (id int, region text, v text) PARTITION BY LIST (region);
CREATE TABLE large_regions_eu PARTITION OF large_regions FOR VALUES IN ('eu');
CREATE TABLE large_regions_us PARTITION OF large_regions FOR VALUES IN ('us');
SELECT automation.watch_table('large_regions', id_columns => '{id}');
INSERT INTO large_regions VALUES (1, 'eu', repeat('x', 200000));
UPDATE large_regions SET region = 'us', v = repeat('y', 200000);
SELECT topic, changed, truncated, prev, next FROM automation.events WHERE kind = 'large_regions' AND op = 'updated';
SELECT count(*) FROM heard();
DROP TABLE large_regions;
CREATE TABLE secret_parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE secret_parts_1 PARTITION OF secret_parts FOR VALUES FROM (0) TO (10);
CREATE TABLE secret_parts_2 PARTITION OF secret_parts FOR VALUES FROM (10) TO (20);
ALTER TABLE secret_parts ENABLE ROW LEVEL SECURITY;
SELECT automation.watch_table('secret_parts');
INSERT INTO secret_parts VALUES (1, 'hush');
UPDATE secret_parts SET v = 'still';
INSERT INTO secret_parts_2 VALUES (11, 'directly');
DELETE FROM secret_parts WHERE id = 1;
SELECT * FROM heard();

SET client_min_messages = warning;
SELECT bool_and(automation.unwatch_table(tgrelid))
  FROM pg_trigger JOIN pg_class AS c ON c.oid = tgrelid
 WHERE tgname = '!automation_engine' AND tgparentid = 0 AND relnamespace = 'relations'::regnamespace;
DROP SCHEMA relations CASCADE;
DROP FOREIGN DATA WRAPPER relations_wrapper CASCADE;
