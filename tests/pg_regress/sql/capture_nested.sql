-- A trigger of the table that changes other rows of the statement it fires for: the events of each entity still come in the
-- order of the row's versions, so that the last one shows the row as it is.
CREATE SCHEMA nested;
SET search_path = nested, public;
CREATE TABLE choice (id int PRIMARY KEY, is_default boolean, n int DEFAULT 0);
SELECT automation.watch_table('choice', kind => 'n_choice');
CREATE VIEW history AS
    SELECT entity_id, string_agg(op || ' ' || coalesce(next ->> 'is_default', '-') || ' ' || coalesce(next ->> 'n', '-'), ', ' ORDER BY id) AS events
      FROM automation.events WHERE kind = 'n_choice' GROUP BY entity_id ORDER BY entity_id::int;
-- only one row may be the default: the newest takes it from all others
CREATE FUNCTION only_one() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.is_default THEN
        UPDATE nested.choice SET is_default = false WHERE id <> NEW.id AND is_default;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER only_one AFTER INSERT OR UPDATE OF is_default ON choice FOR EACH ROW EXECUTE FUNCTION only_one();
INSERT INTO choice VALUES (1, true);
INSERT INTO choice VALUES (2, true), (3, false), (4, true);
SELECT * FROM choice ORDER BY id;
SELECT * FROM history;
DROP TRIGGER only_one ON choice;
-- a trigger that counts up its neighbours, and one that removes them
CREATE FUNCTION neighbour() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF pg_trigger_depth() = 1 THEN
        UPDATE nested.choice SET n = n + 100 WHERE id = NEW.id + 1;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER neighbour AFTER UPDATE ON choice FOR EACH ROW EXECUTE FUNCTION neighbour();
UPDATE choice SET n = id WHERE id IN (1, 2);
SELECT id, n FROM choice ORDER BY id;
SELECT entity_id, split_part(events, ', ', -1) AS last FROM history;
DROP TRIGGER neighbour ON choice;
CREATE FUNCTION remove() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN DELETE FROM nested.choice WHERE id = NEW.id + 1; RETURN NULL; END';
CREATE TRIGGER remove AFTER INSERT ON choice FOR EACH ROW EXECUTE FUNCTION remove();
INSERT INTO choice SELECT i, false FROM generate_series(10, 13) AS i;
SELECT id FROM choice WHERE id >= 10 ORDER BY id;
SELECT * FROM history WHERE entity_id::int >= 10;
SELECT automation.unwatch_table('choice');
SET client_min_messages = warning;
DROP SCHEMA nested CASCADE;
