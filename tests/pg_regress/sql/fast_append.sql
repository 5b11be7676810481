-- automation_engine.fast_append = off: Postgres' own insertion writes the rows and index entries that the engine's own writes.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
SET automation_engine.fast_append = on;
CREATE SCHEMA fast_append;
SET search_path = fast_append, public;
CREATE EXTENSION amcheck SCHEMA fast_append;
CREATE TABLE fa_item (id int PRIMARY KEY, n int NOT NULL DEFAULT 0, note text);
CREATE TABLE seen (way text, item int, n int);
SELECT automation.watch_table('fa_item');
SELECT automation.define('fa-see', trigger => automation.on_updated('fa_item', filter => 'new.id <= 3'),
    steps => ARRAY[automation.sql('INSERT INTO fast_append.seen VALUES (current_setting(''automation_engine.fast_append''),
                                                                        {{ new.id }}, {{ new.n }})')]);
SELECT automation.define('fa-linger', trigger => automation.on_updated('fa_item', filter => 'new.id = 4', hold_for => '1 hour'),
    steps => ARRAY[automation.delay('1 hour')]);
SELECT automation.define('fa-nap', trigger => automation.on_updated('fa_item', filter => 'new.id = 5'),
    steps => ARRAY[automation.delay('1 hour')]);

-- the same writes both ways: one row, groups below and above the size from which pages are filled at once, values that are
-- toasted, nested statements, savepoints
CREATE TABLE mark (way text, above bigint, up_to bigint);
CREATE FUNCTION write_item() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM fa_item;
    INSERT INTO fa_item SELECT i FROM generate_series(1, 250) AS i;
    UPDATE fa_item SET n = n + 1 WHERE id = 1;
    UPDATE fa_item SET n = n + 1 WHERE id <= 99;
    UPDATE fa_item SET n = n + 1;
    UPDATE fa_item SET note = (SELECT string_agg(md5(id::text || g), '') FROM generate_series(1, 1500) AS g) WHERE id BETWEEN 6 AND 8;
    BEGIN
        UPDATE fa_item SET n = 100;
        RAISE EXCEPTION 'undone';
    EXCEPTION WHEN raise_exception THEN
        UPDATE fa_item SET n = 200 WHERE id = 3;
    END;
END $$;
CREATE FUNCTION both_ways() RETURNS TABLE (way text, above bigint, up_to bigint) LANGUAGE plpgsql AS $$
BEGIN
    FOREACH way IN ARRAY '{on,off}'::text[] LOOP
        PERFORM set_config('automation_engine.fast_append', way, true);
        DELETE FROM fast_append.fa_item;
        INSERT INTO fast_append.fa_item SELECT i FROM generate_series(1, 250) AS i;
        SELECT max(e.id) INTO above FROM automation_internal.event AS e;
        PERFORM fast_append.write_item();
        SELECT max(e.id) INTO up_to FROM automation_internal.event AS e;
        PERFORM automation.drain();
        RETURN NEXT;
    END LOOP;
END $$;
INSERT INTO mark SELECT * FROM both_ways();
CREATE VIEW written AS
    SELECT m.way, row_number() OVER (PARTITION BY m.way ORDER BY e.id) AS no,
           e.op, e.kind, e.entity_id, e.topic, e.changed, e.prev::text, e.next::text, e.group_span > 0 AS leads, e.depth, e.role
      FROM mark AS m JOIN automation_internal.event AS e ON e.id > m.above AND e.id <= m.up_to;
SELECT way, count(*), count(*) FILTER (WHERE leads) AS groups, sum(length(next)) > 140000 AS toasted FROM written
 GROUP BY way ORDER BY way;
SELECT count(*) AS differences
  FROM (SELECT no, op, kind, entity_id, topic, changed, prev, next, leads, depth, role FROM written WHERE way = 'on') AS a
  FULL JOIN (SELECT no, op, kind, entity_id, topic, changed, prev, next, leads, depth, role FROM written WHERE way = 'off') AS b
    USING (no) WHERE a IS DISTINCT FROM b;
-- the runs, the holds and the waits of both ways
SELECT way, item, n FROM seen ORDER BY way, item, n;
SELECT automation, status, count(*) FROM automation.runs WHERE automation LIKE 'fa-%' GROUP BY 1, 2 ORDER BY 1, 2;
SELECT automation, kind, count(*) FROM automation.waiting WHERE automation LIKE 'fa-%' GROUP BY 1, 2 ORDER BY 1, 2;

-- every index knows every row, and the partial one by transaction knows no other: a scan of it takes its entries for granted
SELECT count(*) > 20 AS checked, count(bt_index_parent_check(c.oid, true)) = count(*) AS sound
  FROM pg_class AS c
 WHERE c.relnamespace = 'automation_internal'::regnamespace AND c.relkind = 'i'
   AND c.relam = (SELECT oid FROM pg_am WHERE amname = 'btree');

CREATE FUNCTION plan_of_led() RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY EXECUTE 'EXPLAIN (COSTS OFF) SELECT count(*) FROM automation_internal.event WHERE group_span > 0 AND xid > ''0''::xid8';
END $$;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) > 0 AS by_index FROM plan_of_led() AS line WHERE line LIKE '%xid_id_idx%';
SELECT count(*) AS by_index FROM automation_internal.event WHERE group_span > 0 AND xid > '0'::xid8 \gset
SET enable_seqscan = on;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SELECT count(*) = :by_index AS same FROM automation_internal.event WHERE group_span > 0 AND xid > '0'::xid8;
RESET enable_seqscan;
RESET enable_bitmapscan;
RESET enable_indexscan;
RESET enable_indexonlyscan;

-- off, Postgres checks what it writes; on, the engine answers for it
BEGIN;
ALTER TABLE automation_internal.event ADD CONSTRAINT no_such_kind CHECK (kind <> 'fa_item') NOT VALID;
UPDATE fa_item SET n = n + 1 WHERE id = 9;
SAVEPOINT written;
SET LOCAL automation_engine.fast_append = off;
\set VERBOSITY sqlstate
UPDATE fa_item SET n = n + 1 WHERE id = 9;
\set VERBOSITY default
ROLLBACK;

-- a statement on its own is in the index by transaction, too: the client's next message is not guessed at
SELECT max(id) AS above FROM automation_internal.event \gset
UPDATE fa_item SET n = n + 1 WHERE id = 9;
SET automation_engine.fast_append = off;
UPDATE fa_item SET n = n + 1 WHERE id = 9;
SET automation_engine.fast_append = on;
SELECT group_span FROM automation_internal.event WHERE id > :above ORDER BY id;

-- for superusers only; what others write follows the server's setting
CREATE ROLE fast_append_user;
SET ROLE fast_append_user;
SET automation_engine.fast_append = off;
RESET ROLE;

DROP ROLE fast_append_user;
SELECT count(automation.drop_automation(name)) FROM unnest('{fa-see,fa-linger,fa-nap}'::text[]) AS name;
SELECT automation.drain() IS NOT NULL AS drained;
SELECT automation.unwatch_table('fa_item');
DROP SCHEMA fast_append CASCADE;
