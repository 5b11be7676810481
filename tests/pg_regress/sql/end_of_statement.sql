-- What a statement has captured is in the log when it has ended, however it was run, so that the next one sees it.
CREATE TABLE item (id int PRIMARY KEY, v int);
CREATE TABLE part (item int REFERENCES item ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED, id int PRIMARY KEY);
SELECT automation.watch_table('item');
SELECT automation.watch_table('part');
CREATE VIEW logged AS
    SELECT string_agg(op::text || ' ' || kind || ' ' || entity_id, ', ' ORDER BY id) AS logged
      FROM automation_internal.event WHERE op IN ('c', 'u', 'd') AND xid = pg_current_xact_id();

BEGIN;
INSERT INTO item VALUES (1, 0), (2, 0);
SELECT * FROM logged;
-- A COPY has no executor.
COPY item FROM stdin;
3	0
4	0
\.
SELECT * FROM logged;
-- Prepared, with a result, in a WITH clause, explained.
PREPARE raise (int) AS UPDATE item SET v = v + 1 WHERE id = $1;
EXECUTE raise(1);
SELECT * FROM logged;
UPDATE item SET v = 5 WHERE id = 2 RETURNING id, v;
WITH gone AS (DELETE FROM item WHERE id = 4 RETURNING id) SELECT * FROM gone;
DO $$ BEGIN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF) UPDATE item SET v = 6 WHERE id = 3'; END $$;
SELECT * FROM logged;
ROLLBACK;

-- Statement by statement inside a block of code and inside a function that a query calls.
DO $$
DECLARE
    seen text[];
BEGIN
    INSERT INTO item VALUES (1, 0);
    seen := seen || (SELECT logged FROM logged);
    UPDATE item SET v = 1;
    seen := seen || (SELECT logged FROM logged);
    RAISE NOTICE '%', seen;
END $$;
CREATE FUNCTION add_item(id int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO item VALUES ($1, 0);
    RETURN (SELECT logged FROM logged);
END $$;
SELECT add_item(7), add_item(8);

-- What a trigger's own statements change is in its place among what the statement that fired it changes.
CREATE FUNCTION echo() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO part VALUES (new.id, new.id * 10);
    RETURN NULL;
END $$;
CREATE TRIGGER echo AFTER INSERT ON item FOR EACH ROW EXECUTE FUNCTION echo();
BEGIN;
INSERT INTO item VALUES (20, 0), (21, 0);
SELECT * FROM logged;
COMMIT;

-- Without a statement after it: by the commit, also what only the commit does.
DROP TRIGGER echo ON item;
ALTER TABLE part DROP CONSTRAINT part_item_fkey;
CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM part WHERE item = old.id;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER follow AFTER DELETE ON item DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION follow();
BEGIN;
DELETE FROM item WHERE id = 20;
SELECT * FROM logged;
COMMIT;
SELECT op, kind, entity_id FROM automation_internal.event ORDER BY id DESC LIMIT 2;
-- A savepoint takes back what was captured since.
BEGIN;
SAVEPOINT before;
COPY item FROM stdin;
30	0
\.
ROLLBACK TO before;
INSERT INTO item VALUES (31, 0);
SELECT * FROM logged;
COMMIT;
DROP TABLE part, item;
DROP VIEW logged;
DROP FUNCTION add_item, echo, follow;
