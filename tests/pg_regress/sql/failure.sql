-- What happens when a step fails: retries, failures borne, on_failure, timeouts, taking up a failed run again.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv dir PG_ABS_SRCDIR
\set show :dir '/check/show.sql'
\set check :dir '/check/waits.sql'
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
CREATE SCHEMA fail;
SET search_path = fail, public;
\i :show
CREATE TABLE setting (name text PRIMARY KEY, n int);
CREATE TABLE effect (n serial, what text);
INSERT INTO setting VALUES ('divisor', 0);
SELECT automation.set_clock('2030-01-01 12:00+00');
CREATE FUNCTION bad(id text DEFAULT 'bad', retry jsonb DEFAULT NULL, continue_on_error boolean DEFAULT NULL) RETURNS automation.step LANGUAGE sql AS $$
    SELECT automation.sql('INSERT INTO effect (what) SELECT ''tried '' || 1 / n FROM setting', id => id, retry => retry, continue_on_error => continue_on_error) $$;
CREATE FUNCTION ok(id text) RETURNS automation.step LANGUAGE sql AS $$ SELECT automation.sql('SELECT 1 AS one', id => id) $$;

-- R003-8: after 1, 5 and 30 seconds, four tries in all; then failed, with ended_reason step_failed
SELECT name FROM automation.define('x-retry', trigger => automation.on_call(), steps => ARRAY[ok('first'), bad(retry => automation.retry()), ok('last')]);
SELECT automation.start_run('x-retry') AS a \gset
SELECT automation.drain();
SELECT waiting_for, deadline FROM automation.waiting WHERE run_id = :a;
SELECT automation.advance('999 milliseconds'), automation.drain();
SELECT automation.advance('1 millisecond'), automation.drain();
SELECT deadline FROM automation.waiting WHERE run_id = :a;
SELECT automation.advance('5 seconds'), automation.drain();
SELECT deadline FROM automation.waiting WHERE run_id = :a;
SELECT automation.advance('30 seconds'), automation.drain();
SELECT told(:a);
SELECT sqlstate, message, ended_at FROM automation.runs WHERE id = :a;
-- R003-6: mended in between
SELECT automation.start_run('x-retry') AS b \gset
SELECT automation.drain();
UPDATE setting SET n = 1;
SELECT automation.advance('1 second'), automation.drain();
SELECT told(:b);
UPDATE setting SET n = 0;
-- R001-54: taken up again where it failed, from a named step, behind the step; on the version it had
SELECT tried(format('SELECT automation.retry_run(%s)', :b));
SELECT tried(format('SELECT automation.retry_run(%s, %L)', :a, 'nowhere'));
SELECT version FROM automation.define('x-retry', trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 2 AS edited', id => 'first')]);
SELECT automation.retry_run(:a) AS again \gset
SELECT automation.drain();
UPDATE setting SET n = 1;
SELECT automation.advance('1 second'), automation.drain();
SELECT told(:again);
SELECT version, event_id = (SELECT event_id FROM automation.runs WHERE id = :a) AS same_event FROM automation.runs WHERE id = :again;
SELECT retry_of = :a AS retry_of FROM automation.runs WHERE id = :again;
-- one retry of a run: the second is refused, and so is a run without the step
SELECT tried(format('SELECT automation.retry_run(%s)', :a)), tried(format('SELECT automation.skip_step(%s)', :a));
-- from a named step
UPDATE setting SET n = 0;
SELECT automation.activate('x-named') FROM automation.define('x-named', trigger => automation.on_call(), steps => ARRAY[ok('first'), bad(), ok('last')], status => 'draft');
SELECT automation.start_run('x-named') AS a, automation.start_run('x-named') AS b \gset
SELECT automation.drain();
UPDATE setting SET n = 1;
SELECT automation.retry_run(:a, 'first') AS again \gset
SELECT automation.drain();
SELECT told(:again);
-- behind the step
SELECT tried(format('SELECT automation.skip_step(%s, %L)', :b, 'last'));
SELECT automation.skip_step(:b, 'bad') AS again \gset
SELECT automation.drain();
SELECT told(:again);
SELECT retry_of = :b AS retry_of FROM automation.runs WHERE id = :again;
UPDATE setting SET n = 0;
SELECT action, automation FROM automation.audit_log WHERE automation = 'x-retry' AND action = 'automation.run_retried';
-- what earlier steps gave back and set is still there; a loop goes on in the round that failed
SELECT name FROM automation.define('x-loop', trigger => automation.on_call(), steps => ARRAY[automation.set('{"v": 5}'), automation.sql('SELECT 7 AS seven', id => 'q'), automation.for_each('[1, 0, 2]', ARRAY[automation.sql('SELECT {{ repeat.item }}::int / (SELECT n + {{ repeat.item }}::int FROM setting) AS x', id => 'in')]), automation.sql('SELECT {{ vars.v }}::int AS v, {{ steps.q.row.seven }}::int AS seven', id => 'end')]);
SELECT automation.start_run('x-loop') AS a \gset
SELECT automation.drain();
SELECT told(:a);
UPDATE setting SET n = 1;
SELECT automation.retry_run(:a) AS again \gset
SELECT automation.drain();
SELECT told(:again);
UPDATE setting SET n = 0;
-- given delays, the last of them from then on; exponential with a cap
SELECT name FROM automation.define('x-delays', trigger => automation.on_call(), steps => ARRAY[bad(retry => automation.retry(3, delays => '{2 s, 4 s}'))]);
SELECT name FROM automation.define('x-exponential', trigger => automation.on_call(), steps => ARRAY[bad(retry => automation.retry(4, backoff => 'exponential', base => '1 s', factor => 3, cap => '5 s', jitter => 0))]);
SELECT automation.start_run('x-delays') AS a, automation.start_run('x-exponential') AS b \gset
SELECT automation.drain();
CREATE TEMP VIEW next_try AS SELECT automation, deadline - since AS after FROM automation.waiting WHERE automation IN ('x-delays', 'x-exponential') ORDER BY 1;
SELECT * FROM next_try;
SELECT automation.advance('5 s'), automation.drain();
SELECT * FROM next_try;
SELECT automation.advance('5 s'), automation.drain();
SELECT * FROM next_try;
SELECT automation.advance('5 s'), automation.drain();
SELECT * FROM next_try;
SELECT automation.advance('5 s'), automation.drain();
SELECT status, count(*) FROM automation.runs WHERE id IN (:a, :b) GROUP BY 1;
SELECT attempt, status FROM automation.run_steps WHERE run_id = :b ORDER BY seq;
-- mistakes and missing rights are not tried again
SELECT name FROM automation.define('x-mistake', trigger => automation.on_call(), steps => ARRAY[automation.sql($$ DO $x$ BEGIN EXECUTE 'selec'; END $x$ $$, id => 'bad', retry => automation.retry())]);
SELECT automation.start_run('x-mistake') AS a \gset
SELECT automation.drain();
SELECT told(:a);

-- R002-23: continue_on_error, of the step or of one around it; what was done in the step is undone
CREATE FUNCTION go(steps automation.step[], on_failure automation.step[] DEFAULT NULL, timeout interval DEFAULT NULL) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    run bigint;
BEGIN
    PERFORM automation.define('x-go', trigger => automation.on_call(), steps => go.steps, on_failure => go.on_failure, timeout => go.timeout);
    run := automation.start_run('x-go');
    PERFORM automation.drain();
    RETURN QUERY SELECT told(run);
END $$;
SELECT go(ARRAY[bad(continue_on_error => true), automation.sql('SELECT {{ steps.bad.error.sqlstate }}::text AS state', id => 'after')]);
SELECT go(ARRAY[automation.sequence(ARRAY[bad(), ok('never')], id => 'block', continue_on_error => true), automation.sql('SELECT {{ steps.block.error.message }}::text AS m', id => 'after')]);
SELECT go(ARRAY[automation.set('{"v": 1}'), automation.repeat_count(3, ARRAY[automation.set('{"v": 2}'), automation.choose(ARRAY[automation.when_holds('repeat.index = 2', ARRAY[bad()])])], id => 'loop', allow_failure => true), automation.sql('SELECT {{ vars.v }}::int AS v, {{ repeat.index }}::text AS no_loop', id => 'after')]);
SELECT go(ARRAY[automation.repeat_count(2, ARRAY[automation.sequence(ARRAY[bad()], id => 'round', continue_on_error => true), ok('in')]), ok('after')]);
-- a lane's failure is the lane's, unless something in the lane bears it
SELECT go(ARRAY[automation.sequence(ARRAY[automation.parallel(ARRAY[automation.sequence(ARRAY[bad('b1')], continue_on_error => true, id => 'lane1'), automation.sequence(ARRAY[bad('b2')], id => 'lane2')], id => 'par')], id => 'around', continue_on_error => true), ok('after')]);
-- on_failure: the error in scope; it may fail itself, or stop the run otherwise; the first error is kept
SELECT go(ARRAY[ok('one'), bad()], on_failure => ARRAY[automation.sql('SELECT {{ error.message }}::text AS m, {{ error.sqlstate }}::text AS s, {{ error.step }}::text AS at', id => 'f'), ok('f2')]);
SELECT go(ARRAY[bad()], on_failure => ARRAY[automation.sql('SELECT 1 / (n - n) FROM setting', id => 'f')]);
SELECT go(ARRAY[bad()], on_failure => ARRAY[automation.stop('completed', id => 'f')]);
SELECT go(ARRAY[automation.parallel(ARRAY[bad(), automation.delay('1 hour', id => 'd')])], on_failure => ARRAY[ok('f')]);
SELECT automation.advance('1 hour'), automation.drain();
SELECT told((SELECT max(id) FROM automation.runs));

-- timeouts really cancel: of a step, of a run in a step, of a run that waits; on_failure has its own time
SELECT go(ARRAY[automation.sql('SELECT pg_sleep(30)', id => 'slow', timeout => '50 ms')]);
SELECT go(ARRAY[automation.sql('SELECT pg_sleep(30)', id => 'slow', timeout => '50 ms', retry => '1')]);
SELECT automation.advance('1 s'), automation.drain();
SELECT told((SELECT max(id) FROM automation.runs));
SELECT go(ARRAY[automation.sql('SELECT pg_sleep(30)', id => 'slow', continue_on_error => true), ok('never')], timeout => '50 ms', on_failure => ARRAY[automation.sql('SELECT pg_sleep(0.1)::text AS slept', id => 'f')]);
SELECT go(ARRAY[automation.delay('1 day', id => 'd'), ok('never')], timeout => '1 hour', on_failure => ARRAY[ok('f')]);
SELECT due_at, reason FROM automation.timers WHERE run_id = (SELECT max(id) FROM automation.runs) ORDER BY 1;
SELECT automation.advance('59 minutes'), automation.drain(), automation.advance('1 minute'), automation.drain();
SELECT told((SELECT max(id) FROM automation.runs));
-- a run that ended in time leaves no timer
SELECT go(ARRAY[automation.delay('1 minute', id => 'd')], timeout => '1 hour');
SELECT automation.advance('1 minute'), automation.drain();
SELECT count(*) FROM automation_internal.timer;
-- redrive: no such letter, NULL
SELECT automation.redrive(-1);
\echo :LAST_ERROR_SQLSTATE
-- a letter whose run ended: the run is tried again, the letter is gone (R002-11)
INSERT INTO automation_internal.dead_letter (at, run_id, automation_id, owner, reason, error)
SELECT now(), h.id, h.automation_id, h.owner, 'crashed_server', h.error FROM automation_internal.run_history AS h JOIN automation_internal.automation AS a ON a.id = h.automation_id WHERE a.name = 'x-mistake';
SELECT automation, reason, error FROM automation.dead_letters;
SELECT automation.redrive(id) > 0 FROM automation.dead_letters;
SELECT automation.drain();
SELECT status, count(*) FROM automation.runs WHERE automation = 'x-mistake' GROUP BY 1;
SELECT count(*) FROM automation.dead_letters;
SELECT count(*) FROM effect WHERE what LIKE 'tried%';
\i :check
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'x-%';
\i :check
SET client_min_messages = warning;
DROP SCHEMA fail CASCADE;
