-- Thousands of random changes, many of them taken back: replaying the log gives the table, and each event of an entity
-- begins where the one before it ended.
\set SHOW_CONTEXT never
CREATE SCHEMA replay;
SET search_path = replay, public;
CREATE TABLE doc (id int PRIMARY KEY, part int, n numeric, body text, tags text[], at timestamptz) ;
CREATE TABLE piece (id int, part int, n numeric, body text, tags text[], at timestamptz, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE piece_0 PARTITION OF piece FOR VALUES IN (0);
CREATE TABLE piece_1 (at timestamptz, gone int, tags text[], body text, n numeric, part int NOT NULL, id int NOT NULL);
ALTER TABLE piece_1 DROP COLUMN gone;
ALTER TABLE piece ATTACH PARTITION piece_1 FOR VALUES IN (1);
CREATE TABLE piece_2 PARTITION OF piece FOR VALUES IN (2) PARTITION BY RANGE (id);
CREATE TABLE piece_2a PARTITION OF piece_2 FOR VALUES FROM (0) TO (20);
CREATE TABLE piece_2b PARTITION OF piece_2 DEFAULT;
-- a second writer inside the statement: an AFTER trigger that changes the other table, fails sometimes, and handles it
CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() > 1 OR random() > 0.2 THEN
        RETURN NULL;
    END IF;
    BEGIN
        EXECUTE format('UPDATE %I SET n = n + 1 WHERE id = $1', tg_argv[0]) USING (random() * 40)::int;
        IF random() < 0.5 THEN
            RAISE EXCEPTION 'taken back';
        END IF;
    EXCEPTION WHEN raise_exception THEN
        NULL;
    END;
    RETURN NULL;
END $$;
CREATE TRIGGER meddle AFTER INSERT OR UPDATE OR DELETE ON doc FOR EACH ROW EXECUTE FUNCTION meddle('piece');
CREATE TRIGGER meddle AFTER INSERT OR UPDATE OR DELETE ON piece FOR EACH ROW EXECUTE FUNCTION meddle('doc');
SELECT automation.watch_table('doc', kind => 'rp_doc'), automation.watch_table('piece', kind => 'rp_piece', id_columns => '{id}');

CREATE FUNCTION change(name text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    r float8 := random();
    low int := (random() * 40)::int;
    high int := low + (random() * random() * 10)::int;
BEGIN
    CASE
    WHEN r < 0.30 THEN
        EXECUTE format('INSERT INTO %I SELECT i, (random() * 2)::int, round((random() * 1000)::numeric, 3), repeat(chr(97 + i %% 26), (random() * random() * 5000)::int), ARRAY[i::text, NULL], ''2020-01-01''::timestamptz + i * interval ''1 day''
                          FROM generate_series($1, $2) AS i WHERE NOT EXISTS (SELECT FROM %I AS t WHERE t.id = i)', name, name) USING low, high;
    WHEN r < 0.55 THEN
        EXECUTE format('UPDATE %I SET n = n + round(random()::numeric), body = CASE WHEN random() < 0.5 THEN body ELSE body || ''x'' END WHERE id BETWEEN $1 AND $2', name) USING low, high;
    WHEN r < 0.75 THEN
        EXECUTE format('UPDATE %I SET part = (random() * 2)::int, n = CASE WHEN random() < 0.5 THEN n ELSE n + 1 END WHERE id BETWEEN $1 AND $2', name) USING low, high;
    WHEN r < 0.85 THEN
        -- another id: another entity
        EXECUTE format('UPDATE %I AS t SET id = t.id + 100, part = (random() * 2)::int WHERE t.id = $1 AND NOT EXISTS (SELECT FROM %I AS o WHERE o.id = t.id + 100)', name, name) USING low;
    WHEN r < 0.95 THEN
        EXECUTE format('DELETE FROM %I WHERE id BETWEEN $1 AND $2', name) USING low, high;
    ELSE
        EXECUTE format('DELETE FROM %I WHERE id > 100', name);
    END CASE;
    IF random() < 0.2 THEN
        RAISE EXCEPTION 'taken back';
    END IF;
END $$;
CREATE PROCEDURE many(name text, times int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. times LOOP
        BEGIN
            PERFORM replay.change(name);
            IF random() < 0.3 THEN
                BEGIN
                    PERFORM replay.change(name);
                EXCEPTION WHEN raise_exception THEN
                    NULL;
                END;
            END IF;
        EXCEPTION WHEN raise_exception THEN
            NULL;
        END;
        IF random() < 0.3 THEN
            COMMIT;
        ELSIF random() < 0.1 THEN
            ROLLBACK;
        END IF;
    END LOOP;
END $$;
SELECT setseed(0.42);
CALL many('doc', 1500);
CALL many('piece', 1500);
SET TimeZone = 'UTC';
SELECT count(*) > 20 AS enough_rows FROM (SELECT FROM doc UNION ALL SELECT FROM piece) AS t;
SELECT kind, count(*) > 1000 AS enough_events, count(DISTINCT op) AS ops FROM automation.events WHERE kind LIKE 'rp\_%' GROUP BY kind ORDER BY kind;
-- what the log says is there, and what is there
CREATE VIEW said AS
    SELECT DISTINCT ON (kind, entity_id) kind, entity_id, op, next FROM automation.events WHERE kind LIKE 'rp\_%' ORDER BY kind, entity_id, id DESC;
CREATE VIEW there AS
    SELECT 'rp_doc' AS kind, id::text AS entity_id, to_jsonb(doc) AS row FROM doc
    UNION ALL SELECT 'rp_piece', id::text, to_jsonb(piece) FROM piece;
SELECT coalesce(s.kind, t.kind) AS kind, coalesce(s.entity_id, t.entity_id) AS entity_id, s.op, s.next, t.row
  FROM (SELECT * FROM said WHERE op <> 'deleted') AS s
  FULL JOIN there AS t ON t.kind = s.kind AND t.entity_id = s.entity_id
 WHERE s.next::text IS DISTINCT FROM t.row::text;
-- no gaps: what an event calls the old row is what the one before it called the new one
SELECT kind, entity_id, was_op, op, was, prev
  FROM (SELECT e.*, lag(op) OVER w AS was_op, lag(next) OVER w AS was FROM automation.events AS e
         WHERE kind LIKE 'rp\_%' WINDOW w AS (PARTITION BY kind, entity_id ORDER BY id)) AS e
 WHERE prev::text IS DISTINCT FROM was::text
    OR (op = 'created') <> (was_op IS NULL OR was_op = 'deleted')
 ORDER BY id LIMIT 5;
-- an update says exactly what changed
SELECT kind, entity_id, changed
  FROM automation.events
 WHERE kind LIKE 'rp\_%' AND op = 'updated'
   AND changed <> ARRAY(SELECT f.key COLLATE "C" FROM jsonb_each(next) AS f WHERE f.value IS DISTINCT FROM prev -> f.key ORDER BY 1)
 LIMIT 5;
-- all of it is routed once
SELECT status FROM automation.define('rp', triggers => ARRAY[automation.on_changed('rp_doc'), automation.on_changed('rp_piece')], steps => ARRAY[automation.sql('SELECT 1')]);
SELECT count(automation.unwatch_table(t)) FROM unnest('{doc,piece}'::regclass[]) AS t;
SELECT automation.drain() = (SELECT count(*) FROM automation.events WHERE kind LIKE 'rp\_%') AS each_once;
SELECT automation.drain();
SELECT count(*) = count(DISTINCT event_id) AS each_once FROM automation.runs WHERE automation = 'rp';
SELECT automation.drop_automation('rp');
SET client_min_messages = warning;
DROP SCHEMA replay CASCADE;
