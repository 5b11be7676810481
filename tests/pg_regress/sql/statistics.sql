-- Autovacuum analyzes the partitions of the log, never the log as a whole; housekeeping does, once it has grown enough.
\pset format unaligned
\pset tuples_only
CREATE SCHEMA statistics;
SET search_path = statistics, public;
CREATE FUNCTION expected_rows(query text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
    RETURN (plan -> 0 -> 'Plan' ->> 'Plan Rows')::bigint;
END $$;
CREATE FUNCTION analyze_partitions() RETURNS void LANGUAGE plpgsql AS $$
DECLARE leaf regclass;
BEGIN
    FOR leaf IN SELECT i.inhrelid FROM pg_inherits AS i WHERE i.inhparent = 'automation_internal.event'::regclass LOOP
        EXECUTE format('ANALYZE %s', leaf);
    END LOOP;
END $$;
-- the planner of a server as it comes
SET enable_seqscan = on;
SELECT count(automation.emit('statistics.grow')) FROM generate_series(1, 5000);
SELECT analyze_partitions();
-- other tests have kept house before
DELETE FROM pg_statistic WHERE starelid = 'automation_internal.event'::regclass AND stainherit;
UPDATE pg_class SET reltuples = -1 WHERE oid = 'automation_internal.event'::regclass;

-- every event has one id, but of the whole log the planner only knows how many rows it has
CREATE VIEW joined AS SELECT FROM automation_internal.event AS a JOIN automation_internal.event AS b ON b.id = a.id;
CREATE VIEW log_size AS SELECT count(*) AS n FROM automation_internal.event;
SELECT expected_rows('SELECT FROM joined') > 10 * n AS far_too_many FROM log_size;
SELECT automation.sweep() >= 0;
SELECT expected_rows('SELECT FROM joined') BETWEEN n / 2 AND n * 2 AS about_right FROM log_size;
SELECT count(*) FROM pg_stats WHERE schemaname = 'automation_internal' AND tablename = 'event' AND inherited;
-- it has not changed enough since to be read again
SELECT reltuples FROM pg_class WHERE oid = 'automation_internal.event'::regclass \gset
SELECT count(automation.emit('statistics.grow')) FROM generate_series(1, 500);
\c -
SELECT automation.sweep() >= 0;
SELECT reltuples = :reltuples FROM pg_class WHERE oid = 'automation_internal.event'::regclass;

SET client_min_messages = warning;
DROP SCHEMA statistics CASCADE;
