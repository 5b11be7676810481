-- Keeping house: partitions by the clock on the wall, table by table, and nothing that fails unnoticed.
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only
-- what fails is told as a warning, which names a day
SET client_min_messages = error;
SET timezone = 'UTC';
CREATE SCHEMA housekeeping;
SET search_path = housekeeping, public;
-- days are counted from 2000-01-01
CREATE FUNCTION day_no(ahead integer) RETURNS integer LANGUAGE sql
    RETURN floor(extract(epoch FROM now() - timestamptz '2000-01-01 00:00+00') / 86400)::integer + ahead;
CREATE FUNCTION with_partition(ahead integer) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT t FROM unnest('{event,run_history,delivery,delivery_attempt}'::text[]) AS t
     WHERE EXISTS (SELECT FROM pg_inherits
                    WHERE inhparent = ('automation_internal.' || t)::regclass
                      AND inhrelid = to_regclass(format('automation_internal.%I', t || '_d' || day_no(ahead))))
     ORDER BY t $$;
CREATE FUNCTION drop_partitions(ahead integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    t text;
BEGIN
    FOR t IN SELECT with_partition(ahead) LOOP
        EXECUTE format('ALTER EXTENSION automation_engine DROP TABLE automation_internal.%I', t || '_d' || day_no(ahead));
        EXECUTE format('DROP TABLE automation_internal.%I', t || '_d' || day_no(ahead));
    END LOOP;
END $$;
CREATE VIEW in_default AS
    SELECT 'event' AS t, count(*) FROM automation_internal.event_default
    UNION ALL SELECT 'run_history', count(*) FROM automation_internal.run_history_default
    UNION ALL SELECT 'delivery', count(*) FROM automation_internal.delivery_default
    UNION ALL SELECT 'delivery_attempt', count(*) FROM automation_internal.delivery_attempt_default
    ORDER BY t;
CREATE VIEW failing AS SELECT status, detail FROM automation.status() WHERE item = 'housekeeping';
SELECT name FROM automation.define('h-clock', trigger => automation.on_call(), steps => ARRAY[automation.set('{"a": 1}')]);

-- a session with a clock of its own fills no day that is yet to come; the run has the time that the session saw
BEGIN;
SELECT automation.set_clock(now() + interval '40 days') IS NOT NULL;
SELECT automation.start_run('h-clock') > 0;
SELECT automation.drain();
COMMIT;
SELECT automation.set_clock(NULL) IS NULL;
SELECT status, ended_at > now() + interval '39 days', took < interval '1 minute' FROM automation.runs WHERE automation = 'h-clock';
SELECT recorded_at <= now() FROM automation_internal.run_history AS h JOIN automation.runs AS r USING (id) WHERE r.automation = 'h-clock';
SELECT * FROM in_default;

-- rows of a day without a partition move to it when it is made; what is past its retention goes, also from there
BEGIN;
SELECT drop_partitions(1);
SELECT * FROM with_partition(1);
INSERT INTO automation_internal.run_history
    (id, event_id, event_at, started_at, ended_at, owner, automation_id, version_id, trigger_no, attempt, depth, status, recorded_at)
SELECT -n, 0, now(), now(), now(), 10, 0, 0, 0, 0, 0, 'completed', now() + CASE n WHEN 1 THEN interval '1 day' ELSE interval '-31 days' END
  FROM generate_series(1, 2) AS n;
INSERT INTO automation_internal.event (id, xid, occurred_at, group_span, role, depth, op, truncated)
SELECT -n, '3', now() + CASE n WHEN 1 THEN interval '1 day' ELSE interval '-31 days' END, 0, 10, 0, 'e', false
  FROM generate_series(1, 2) AS n;
SELECT * FROM in_default;
SELECT automation.sweep() IS NOT NULL;
SELECT * FROM with_partition(1);
SELECT * FROM in_default;
SELECT id, tableoid::regclass::text LIKE 'automation_internal.run_history_d%' FROM automation_internal.run_history WHERE id < 0;
SELECT id FROM automation_internal.event WHERE id < 0;
SELECT * FROM failing;
ROLLBACK;

-- one table that cannot have its partition does not keep the others from theirs, and is not kept quiet
BEGIN;
SELECT drop_partitions(1);
INSERT INTO automation_internal.delivery_attempt (outbox_id, attempt, started_at, ended_at)
SELECT n, 1, now(), now() + interval '1 day' FROM generate_series(1, 20001) AS n;
SELECT automation.sweep() IS NOT NULL;
SELECT * FROM with_partition(1);
SELECT * FROM failing;
ROLLBACK;
-- until it is mended
SELECT automation.sweep() IS NOT NULL;
SELECT * FROM failing;
SELECT * FROM with_partition(1);
SELECT automation.drop_automation('h-clock');
DROP SCHEMA housekeeping CASCADE;
