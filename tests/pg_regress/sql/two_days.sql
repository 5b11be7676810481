-- The log has a partition for each day. A batch that ends in the first of two leaves nothing out.
CREATE TABLE item (id int PRIMARY KEY);
CREATE TABLE seen (id int);
SELECT automation.watch_table('item');
SELECT automation.define('see', trigger => automation.on_created('item'),
                         steps => ARRAY[automation.sql('INSERT INTO seen VALUES ({{ new.id }})')]);
SELECT automation.drain() >= 0 AS drained;

CREATE PROCEDURE write_over_midnight(events int, tomorrows int) LANGUAGE plpgsql AS $$
BEGIN
    TRUNCATE item, seen;
    PERFORM automation.drain();
    COMMIT;
    FOR i IN 1 .. events LOOP
        INSERT INTO item VALUES (i);
        COMMIT;
    END LOOP;
    UPDATE automation_internal.event AS e
       SET occurred_at = e.occurred_at + interval '1 day'
     WHERE e.id IN (SELECT m.id FROM automation_internal.event AS m ORDER BY m.id DESC LIMIT tomorrows);
END $$;
CREATE PROCEDURE route_by(batch int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. 30 LOOP
        PERFORM automation.route(batch);
        COMMIT;
    END LOOP;
    PERFORM automation.drain();
END $$;
CREATE VIEW verdict AS
    SELECT count(DISTINCT s.id) AS seen, count(*) - count(DISTINCT s.id) AS doubled,
           (SELECT count(*) FROM item) - count(DISTINCT s.id) AS lost
      FROM seen AS s;

CALL write_over_midnight(9, 3);
CALL route_by(2);
SELECT * FROM verdict;
CALL write_over_midnight(9, 3);
CALL route_by(1);
SELECT * FROM verdict;
CALL write_over_midnight(9, 8);
CALL route_by(3);
SELECT * FROM verdict;

DROP VIEW verdict;
DROP PROCEDURE write_over_midnight, route_by;
SELECT automation.drop_automation('see');
SELECT automation.unwatch_table('item');
DROP TABLE item, seen;
