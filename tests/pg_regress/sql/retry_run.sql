-- retry_run(): a failed parallel goes on in the lanes that failed, steps of lanes can be named, and a run is repeated once.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv dir PG_ABS_SRCDIR
\set show :dir '/check/show.sql'
\set check :dir '/check/waits.sql'
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE SCHEMA again;
SET search_path = again, public;
\i :show
SELECT automation.set_clock('2030-01-01 12:00+00');
CREATE TABLE effect (n serial, what text);
CREATE TABLE broken (what text);
CREATE FUNCTION act(id text) RETURNS automation.step LANGUAGE sql AS $$
    SELECT automation.sql(format('INSERT INTO effect (what) SELECT %L || 1 / (NOT EXISTS (SELECT FROM broken WHERE what = %1$L))::int', id), id => id) $$;
CREATE FUNCTION effects() RETURNS text LANGUAGE sql AS $$ WITH gone AS (DELETE FROM effect RETURNING n, what) SELECT string_agg(what, ' ' ORDER BY n) FROM gone $$;
SELECT name FROM automation.define('r-lanes', trigger => automation.on_call(), steps => ARRAY[
    automation.parallel(ARRAY[automation.sequence(ARRAY[act('a1'), act('a2'), act('a3')], id => 'a'), automation.sequence(ARRAY[act('b1'), act('b2')], id => 'b'), act('c')], id => 'par'),
    act('z')]);
-- the lane that failed goes on at the step that failed
INSERT INTO broken VALUES ('a2'), ('c');
SELECT automation.start_run('r-lanes') AS a, automation.start_run('r-lanes') AS b, automation.start_run('r-lanes') AS c \gset
SELECT automation.drain();
SELECT effects();
DELETE FROM broken;
SELECT automation.retry_run(:a) AS again \gset
SELECT automation.drain();
SELECT told(:again), effects();
SELECT retry_of = :a AS retry_of FROM automation.runs WHERE id = :again;
-- a step of a lane is named: that lane goes on there, the others as they stood
SELECT automation.retry_run(:b, 'a3') AS again \gset
SELECT automation.drain();
SELECT told(:again), effects();
SELECT automation.retry_run(:c, 'b2') AS again \gset
SELECT automation.drain();
SELECT told(:again), effects();
-- no such step; a step of lanes that the run did not fail in; a run without lanes to go on in
INSERT INTO broken VALUES ('z');
SELECT automation.start_run('r-lanes') AS a \gset
SELECT automation.drain();
SELECT tried(format('SELECT automation.retry_run(%s, %L)', :a, step)) FROM unnest(ARRAY['nowhere', 'a2']) AS step;
-- all lanes of it, if that is what is wanted
SELECT effects();
SELECT automation.retry_run(:a, 'par') AS again \gset
SELECT automation.drain();
SELECT effects();
-- while the retry is queued, and when it has failed itself: then it is the one to be retried
SELECT automation.retry_run(:again) AS third \gset
SELECT tried(format('SELECT automation.retry_run(%s)', :again));
SELECT automation.drain();
SELECT tried(format('SELECT automation.retry_run(%s)', :again));
DELETE FROM broken;
SELECT automation.retry_run(:third) AS fourth \gset
SELECT automation.drain();
SELECT effects();
SELECT tried(format('SELECT automation.retry_run(%s)', :third));
SELECT array_agg(retry_of ORDER BY id) = ARRAY[:a, :again, :third]::bigint[] AS in_a_row FROM automation.runs WHERE id IN (:again, :third, :fourth);
-- a retry that took no step gives way to the next: cancelled while it was queued
INSERT INTO broken VALUES ('a1');
SELECT automation.start_run('r-lanes') AS a \gset
SELECT automation.drain();
DELETE FROM broken;
SELECT effects();
SELECT automation.retry_run(:a) AS again \gset
SELECT automation.cancel_run(:again);
SELECT automation.drain();
SELECT status, retry_of = :a AS retry_of, steps FROM automation.runs WHERE id = :again;
SELECT automation.retry_run(:a) AS third \gset
SELECT automation.drain();
SELECT told(:third), effects();
SELECT status, retry_of = :a AS retry_of FROM automation.runs WHERE id = :third;
-- taken back, it never was
INSERT INTO broken VALUES ('z');
SELECT automation.start_run('r-lanes') AS a \gset
SELECT automation.drain();
BEGIN;
SELECT automation.retry_run(:a) > 0;
ROLLBACK;
SELECT automation.retry_run(:a) > 0;
-- lanes in a lane, with on_failure; a run that took too long goes on in the lanes that it was in
DELETE FROM effect; DELETE FROM broken;
SELECT automation.drain();
SELECT effects();
SELECT name FROM automation.define('r-deep', trigger => automation.on_call(), timeout => '1 hour', on_failure => ARRAY[act('sorry')], steps => ARRAY[
    automation.parallel(ARRAY[automation.sequence(ARRAY[automation.parallel(ARRAY[act('x1'), act('x2')], id => 'inner'), act('x3')]), automation.sequence(ARRAY[automation.delay('2 hours', id => 'd'), act('y')])], id => 'outer')]);
INSERT INTO broken VALUES ('x2');
SELECT automation.start_run('r-deep') AS a \gset
SELECT automation.drain();
SELECT automation.advance('1 hour'), automation.drain();
SELECT told(:a), effects();
DELETE FROM broken;
SELECT automation.retry_run(:a, 'y') AS again \gset
SELECT automation.drain();
SELECT told(:again), effects();
-- the history forgets the runs, and with them which repeated which
SELECT count(*) > 0 AS some FROM automation_internal.run_retry;
SELECT automation.set_clock(NULL);
SELECT automation.sweep() IS NOT NULL, count(*) > 0 AS kept FROM automation_internal.run_retry;
\i :check
BEGIN;
UPDATE automation_internal.run_retry SET ordered_at = '2000-01-01';
DELETE FROM automation_internal.run_history WHERE id = :again;
SELECT automation.sweep() IS NOT NULL;
SELECT count(*) FILTER (WHERE run_id = :again) AS forgotten, count(*) > 0 AS others FROM automation_internal.run_retry;
ROLLBACK;
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'r-%';
SET client_min_messages = warning;
DROP SCHEMA again CASCADE;
