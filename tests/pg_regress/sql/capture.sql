-- What changes of a watched table leave in the log: every way to write, in order, once, and nothing for no change.
\set SHOW_CONTEXT never
CREATE SCHEMA capture;
SET search_path = capture, public;
CREATE TABLE mark (last bigint);
INSERT INTO mark SELECT coalesce(max(id), 0) FROM automation.events;
-- what was recorded since the last look
CREATE FUNCTION heard() RETURNS TABLE (topic text, entity_id text, changed text[], prev jsonb, next jsonb)
LANGUAGE sql AS $$
    WITH new AS MATERIALIZED (
             SELECT e.* FROM automation.events AS e WHERE e.id > (SELECT last FROM capture.mark)),
         moved AS (UPDATE capture.mark SET last = greatest(last, (SELECT max(id) FROM new)))
    SELECT n.topic, n.entity_id, n.changed, n.prev, n.next FROM new AS n ORDER BY n.id $$;

CREATE TABLE orders (id int PRIMARY KEY, status text, total numeric);
SELECT automation.watch_table('orders');
-- again: nothing to do
SELECT automation.watch_table('orders');
SELECT DISTINCT tgenabled FROM pg_trigger WHERE tgrelid = 'orders'::regclass AND tgname LIKE '!%';

-- INSERT, UPDATE, DELETE (R001-1, R001-9)
INSERT INTO orders VALUES (1, 'new', 250);
SELECT * FROM heard();
UPDATE orders SET status = 'paid' WHERE id = 1;
SELECT * FROM heard();
UPDATE orders SET status = 'sent', total = NULL WHERE id = 1;
SELECT * FROM heard();
DELETE FROM orders WHERE id = 1;
SELECT * FROM heard();
-- several rows of one statement, in the order they were written
INSERT INTO orders SELECT i, 'new', i * 10 FROM generate_series(1, 3) AS i;
SELECT * FROM heard();
UPDATE orders SET total = total + 1;
SELECT * FROM heard();

-- no difference, no event (R000-2)
UPDATE orders SET status = status;
UPDATE orders SET status = 'new', total = 11.0 WHERE id = 1;
UPDATE orders SET total = 11.00 WHERE id = 1;
UPDATE orders SET status = 'x' WHERE false;
DELETE FROM orders WHERE id = 99;
SELECT * FROM heard();

-- COPY
COPY orders FROM stdin (FORMAT csv);
10,copied,1.10
11,copied,
\.
SELECT * FROM heard();

-- MERGE
MERGE INTO orders AS o
USING (VALUES (10, 'merged'), (11, NULL), (12, 'made')) AS s (id, status) ON o.id = s.id
WHEN MATCHED AND s.status IS NULL THEN DELETE
WHEN MATCHED THEN UPDATE SET status = s.status
WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.status, 0);
SELECT * FROM heard();

-- ON CONFLICT
INSERT INTO orders VALUES (12, 'again', 5), (13, 'fresh', 5)
    ON CONFLICT (id) DO UPDATE SET status = excluded.status;
INSERT INTO orders VALUES (13, 'ignored', 5) ON CONFLICT DO NOTHING;
INSERT INTO orders VALUES (13, 'fresh', 5) ON CONFLICT (id) DO UPDATE SET status = excluded.status;
SELECT * FROM heard();

-- a data-modifying CTE
WITH gone AS (DELETE FROM orders WHERE id = 13 RETURNING *)
INSERT INTO orders SELECT id + 1, status, total FROM gone;
SELECT * FROM heard();

-- a change of the key is another entity: the old one is gone, the new one is there
UPDATE orders SET id = 15, status = 'renamed' WHERE id = 14;
SELECT * FROM heard();

-- two updates of one row in one transaction are two events, also if the second takes the first back
BEGIN;
UPDATE orders SET status = 'a' WHERE id = 1;
UPDATE orders SET status = 'b' WHERE id = 1;
UPDATE orders SET status = 'a' WHERE id = 1;
COMMIT;
SELECT * FROM heard();
-- delete and insert again in one transaction
BEGIN;
DELETE FROM orders WHERE id = 1;
INSERT INTO orders VALUES (1, 'back', 0);
COMMIT;
SELECT * FROM heard();

-- ROLLBACK leaves none, ROLLBACK TO leaves what was before the savepoint
BEGIN;
UPDATE orders SET status = 'never' WHERE id = 1;
ROLLBACK;
SELECT * FROM heard();
BEGIN;
UPDATE orders SET status = 'kept' WHERE id = 1;
SAVEPOINT s;
UPDATE orders SET status = 'never' WHERE id = 1;
INSERT INTO orders VALUES (100, 'never', 0);
ROLLBACK TO s;
UPDATE orders SET status = 'last' WHERE id = 1;
SAVEPOINT t;
UPDATE orders SET total = 7 WHERE id = 1;
RELEASE t;
COMMIT;
SELECT * FROM heard();
-- a failed statement leaves none
INSERT INTO orders VALUES (101, 'never', 0), (1, 'twice', 0);
SELECT * FROM heard();
-- an exception block in PL/pgSQL
DO $$
BEGIN
    INSERT INTO orders VALUES (102, 'never', 0);
    RAISE EXCEPTION 'no';
EXCEPTION WHEN raise_exception THEN
    INSERT INTO orders VALUES (103, 'handled', 0);
END $$;
SELECT * FROM heard();

-- TRUNCATE is one event of its own
TRUNCATE orders;
SELECT * FROM heard();

-- triggers of the table: BEFORE changes what is written, AFTER writes a second time
CREATE FUNCTION tidy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.status := lower(NEW.status); RETURN NEW; END $$;
CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN UPDATE orders SET total = 1 WHERE id = NEW.id AND total IS NULL; RETURN NULL; END $$;
CREATE TRIGGER tidy BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION tidy();
CREATE TRIGGER follow AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION follow();
INSERT INTO orders VALUES (1, 'NEW', NULL);
SELECT * FROM heard();
UPDATE orders SET status = 'NEW';
SELECT * FROM heard();
DROP TRIGGER tidy ON orders;
DROP TRIGGER follow ON orders;

-- a trigger that writes, fails and handles it, in the middle of a statement: what the statement itself wrote stays
CREATE TABLE side (id int PRIMARY KEY);
SELECT automation.watch_table('side');
CREATE FUNCTION try_side() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        INSERT INTO side VALUES (NEW.id), (NEW.id + 1000);
        IF NEW.status = 'fail' THEN
            RAISE EXCEPTION 'no';
        END IF;
    EXCEPTION WHEN raise_exception THEN
        NULL;
    END;
    RETURN NULL;
END $$;
CREATE TRIGGER try_side AFTER INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION try_side();
INSERT INTO orders VALUES (20, 'fail', 0), (21, 'keep', 0), (22, 'fail', 0);
SELECT topic, entity_id FROM heard() ORDER BY topic, entity_id;
SELECT (SELECT count(*) FROM orders WHERE id BETWEEN 20 AND 22) AS orders, (SELECT count(*) FROM side) AS side;
BEGIN;
INSERT INTO orders VALUES (23, 'fail', 0);
SAVEPOINT s;
UPDATE orders SET total = 1 WHERE id IN (20, 23);
ROLLBACK TO s;
UPDATE orders SET total = 2 WHERE id IN (20, 23);
COMMIT;
SELECT topic, entity_id, next -> 'total' AS total FROM heard() ORDER BY topic, entity_id;
DROP TRIGGER try_side ON orders;
-- nested exception blocks around many rows
DO $$
BEGIN
    INSERT INTO side SELECT i FROM generate_series(2001, 2003) AS i;
    BEGIN
        INSERT INTO side VALUES (2004);
        BEGIN
            INSERT INTO side VALUES (2005);
            RAISE EXCEPTION 'no';
        EXCEPTION WHEN raise_exception THEN
            INSERT INTO side VALUES (2006);
        END;
    END;
    BEGIN
        INSERT INTO side VALUES (2007), (2001);
    EXCEPTION WHEN unique_violation THEN
        INSERT INTO side VALUES (2008);
    END;
END $$;
SELECT string_agg(entity_id, ' ' ORDER BY entity_id) FROM heard();
-- more rows than fit any batch, some of them taken back
BEGIN;
INSERT INTO side SELECT i FROM generate_series(10001, 11500) AS i;
SAVEPOINT s;
INSERT INTO side SELECT i FROM generate_series(11501, 13000) AS i;
ROLLBACK TO s;
DELETE FROM side WHERE id > 11000;
COMMIT;
SELECT topic, count(*), count(DISTINCT entity_id), min(entity_id), max(entity_id) FROM heard() GROUP BY topic ORDER BY topic;
SELECT automation.unwatch_table('side');

-- foreign-key cascades
CREATE TABLE line (
    order_id int REFERENCES orders ON DELETE CASCADE ON UPDATE CASCADE,
    no int,
    note int REFERENCES orders ON DELETE SET NULL,
    PRIMARY KEY (order_id, no));
SELECT automation.watch_table('line');
INSERT INTO orders VALUES (2, 'x', 0);
INSERT INTO line VALUES (1, 1, 2), (1, 2, NULL);
SELECT topic, entity_id FROM heard();
DELETE FROM orders WHERE id = 2;
SELECT * FROM heard();
UPDATE orders SET id = 3 WHERE id = 1;
SELECT * FROM heard();
DELETE FROM orders WHERE id = 3;
SELECT * FROM heard();
-- TRUNCATE ... CASCADE reaches both
TRUNCATE orders CASCADE;
SELECT topic, entity_id FROM heard() ORDER BY topic;

-- watched columns, ignored columns, another kind, a tenant
CREATE TABLE account (id int PRIMARY KEY, org text, name text, hits int, secret text);
SELECT automation.watch_table('account', kind => 'acct', columns => '{name,org,hits}', ignore => '{hits}', tenant_column => 'org');
INSERT INTO account VALUES (1, 'acme', 'Ann', 0, 'hush');
UPDATE account SET hits = 1, secret = 'still';
UPDATE account SET name = 'Anna', hits = 2;
SELECT topic, entity_id, changed, prev, next FROM heard();
SELECT tenant FROM automation.events WHERE kind = 'acct' ORDER BY id;
-- other arguments replace the old ones
SELECT automation.watch_table('account', kind => 'account', columns => '{name}');
UPDATE account SET name = 'Anne';
SELECT * FROM heard();
-- a column added later is seen, a dropped one is not missed
SELECT automation.watch_table('account', kind => 'account');
ALTER TABLE account DROP COLUMN hits, ADD COLUMN city text DEFAULT 'Oslo';
UPDATE account SET name = 'Ann';
ALTER TABLE account RENAME COLUMN city TO town;
UPDATE account SET town = 'Rome';
SELECT * FROM heard();
-- unwatch: nothing more is recorded
SELECT automation.unwatch_table('account');
SELECT automation.unwatch_table('account');
UPDATE account SET name = 'Nobody';
SELECT * FROM heard();
SELECT tgname FROM pg_trigger WHERE tgrelid = 'account'::regclass;

-- who did it
SET automation_engine.actor = 'user:42';
INSERT INTO orders VALUES (1, 'new', 1);
RESET automation_engine.actor;
UPDATE orders SET total = 2;
SELECT topic, actor, role, cause_run, depth FROM automation.events WHERE kind = 'orders' ORDER BY id DESC LIMIT 2;

-- a superuser may silence a bulk load
SELECT count(*) FROM heard();
BEGIN;
SET LOCAL automation_engine.capture = off;
INSERT INTO orders SELECT i, 'bulk', 0 FROM generate_series(1000, 1100) AS i;
UPDATE orders SET status = 'silent';
TRUNCATE line;
COMMIT;
DELETE FROM orders WHERE id > 1;
SELECT topic, count(*) FROM heard() GROUP BY topic;
CREATE ROLE regress_capture;
SET ROLE regress_capture;
SET automation_engine.capture = off;
\echo :LAST_ERROR_SQLSTATE
RESET ROLE;
DROP ROLE regress_capture;

-- triggers that do not fire are reported
SELECT item, status FROM automation.status() WHERE item LIKE '%orders%' OR item LIKE '%line%';
ALTER TABLE orders DISABLE TRIGGER USER;
SELECT item, status, detail FROM automation.status() WHERE item LIKE '%orders%';
ALTER TABLE orders ENABLE TRIGGER USER;
SELECT item, status, detail FROM automation.status() WHERE item LIKE '%orders%';
SET session_replication_role = replica;
UPDATE orders SET status = 'replica';
SELECT * FROM heard();
SELECT item, status, detail FROM automation.status() WHERE item LIKE '%replication%' OR item LIKE '%orders%';
RESET session_replication_role;

SELECT automation.unwatch_table('orders'), automation.unwatch_table('line');
SET client_min_messages = warning;
DROP SCHEMA capture CASCADE;
