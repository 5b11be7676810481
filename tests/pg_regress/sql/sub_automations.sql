-- Automations that run automations: results, failures, cancelling from the top, timeouts, depth.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv dir PG_ABS_SRCDIR
\set show :dir '/check/show.sql'
\set check :dir '/check/waits.sql'
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
CREATE SCHEMA sub;
SET search_path = sub, public;
\i :show
SELECT automation.set_clock('2030-01-01 12:00+00');
-- R001-53: the payload is the arguments, the topic automation.invocation.<name>; the result is in scope
SELECT name FROM automation.define('u-sum', trigger => automation.on_call(), steps => ARRAY[automation.set('{"sum": "{{ payload.a + payload.b }}", "topic": "{{ event.topic }}"}'), automation.sequence(ARRAY[automation.set('{"local": 1}')])]);
SELECT name, notices FROM automation.define('u-top', trigger => automation.on_call(), steps => ARRAY[automation.run('u-sum', '{"a": 1, "b": payload.b}', id => 'c'), automation.sql('SELECT {{ steps.c.result.sum }}::int AS sum, {{ steps.c.status }}::text AS status', id => 'e')]);
SELECT automation.start_run('u-top', '{"b": 5}') AS a \gset
SELECT automation.drain();
SELECT told(:a);
SELECT r.automation, r.status, r.trigger, r.parent = :a AS ours, e.topic, e.payload FROM automation.runs AS r JOIN automation.events AS e ON e.id = r.event_id WHERE r.parent = :a;
-- one that is not there is told at once, and may come later
SELECT name, notices FROM automation.define('u-later', trigger => automation.on_call(), steps => ARRAY[automation.run('u-missing', id => 'c', continue_on_error => true)]);
SELECT automation.start_run('u-later') AS a \gset
SELECT automation.drain();
SELECT told(:a);
-- its failure is the step's; retried as a new run; borne
SELECT name FROM automation.define('u-bad', trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1 / 0', id => 'boom')]);
SELECT name FROM automation.define('u-top', trigger => automation.on_call(), steps => ARRAY[automation.run('u-bad', id => 'c', retry => automation.retry(1)), automation.sql('SELECT 1')]);
SELECT automation.start_run('u-top') AS a \gset
SELECT automation.drain();
SELECT told(:a);
SELECT automation.advance('1 second'), automation.drain();
SELECT told(:a);
SELECT count(*), count(DISTINCT id) FROM automation.runs WHERE parent = :a;
-- skipped by its own condition counts as done; paused is an error of the step
SELECT name FROM automation.define('u-picky', trigger => automation.on_call(), condition => 'payload.n > 1', steps => ARRAY[automation.sql('SELECT 1')]);
SELECT name FROM automation.define('u-top', trigger => automation.on_call(), steps => ARRAY[automation.run('u-picky', '{"n": 1}', id => 'c')]);
SELECT automation.start_run('u-top') AS a \gset
SELECT automation.drain();
SELECT told(:a);
SELECT ok FROM automation.pause('u-picky');
SELECT automation.start_run('u-top') AS a \gset
SELECT automation.drain();
SELECT told(:a);
-- a tree of depth 5, cancelled from the top: everything in it ends, nothing moves any more
SELECT name FROM generate_series(1, 5) AS i, automation.define('u-' || i, trigger => automation.on_call(), steps => CASE WHEN i < 5 THEN ARRAY[
    automation.parallel(ARRAY[automation.run('u-' || i + 1, '{"d": payload.d + 1}', id => 'left'), automation.run('u-' || i + 1, '{"d": payload.d + 1}', id => 'right')]), automation.sql('SELECT 1', id => 'after')]
    ELSE ARRAY[automation.delay('1 hour', id => 'd'), automation.set('{"deep": "{{ payload.d }}"}')] END);
SELECT automation.start_run('u-1', '{"d": 1}') AS a \gset
SELECT automation.drain();
SELECT automation, status, count(*) FROM automation.runs WHERE automation ~ '^u-\d' GROUP BY 1, 2 ORDER BY 1;
SELECT step, regexp_replace(waiting_for, '\d+', 'N') FROM automation.waiting WHERE run_id = :a;
\i :check
SELECT automation.cancel_run(:a);
SELECT automation, status, ended_reason, count(*) FROM automation.runs WHERE automation ~ '^u-\d' GROUP BY 1, 2, 3 ORDER BY 1;
\i :check
SELECT automation.advance('1 hour'), automation.drain();
SELECT automation, status, count(*) FROM automation.runs WHERE automation ~ '^u-\d' GROUP BY 1, 2 ORDER BY 1;
SELECT count(*) FROM automation_internal.cancel_request;
-- left alone it comes back up
SELECT automation.start_run('u-1', '{"d": 1}') AS a \gset
SELECT automation.drain();
SELECT automation.advance('1 hour'), automation.drain();
SELECT automation, status, count(*) FROM automation.runs WHERE id >= :a GROUP BY 1, 2 ORDER BY 1;
-- cancelled in the middle: that lane of the parent fails, the other one runs on, the parent fails when both are done
SELECT automation.start_run('u-3', '{"d": 1}') AS a \gset
SELECT automation.drain();
SELECT min(id) AS child FROM automation.runs WHERE parent = :a \gset
SELECT automation.cancel_run(:child);
SELECT automation.drain();
SELECT told(:a);
SELECT automation.advance('1 hour'), automation.drain();
SELECT told(:a);
SELECT automation, status, count(*) FROM automation.runs WHERE id > :a GROUP BY 1, 2 ORDER BY 1, 2;
-- cancelled in the transaction that started it, before its child is routed
BEGIN;
SELECT automation.start_run('u-4', '{"d": 1}') AS a \gset
SELECT automation.drain();
SELECT automation.cancel_run(:a);
COMMIT;
SELECT automation.drain();
SELECT automation, status, count(*) FROM automation.runs WHERE id >= :a GROUP BY 1, 2 ORDER BY 1;
-- the step's timeout cancels the child
SELECT name FROM automation.define('u-top', trigger => automation.on_call(), steps => ARRAY[automation.run('u-5', id => 'c', timeout => '1 minute', continue_on_error => true), automation.sql('SELECT {{ steps.c.error.message }}::text AS m', id => 'e')]);
SELECT automation.start_run('u-top') AS a \gset
SELECT automation.drain();
SELECT automation.advance('1 minute'), automation.drain();
SELECT told(:a);
SELECT automation, status, ended_reason FROM automation.runs WHERE parent = :a;
-- skipping the step, dropping the parent, a stop in another lane: all leave the child behind
SELECT automation.start_run('u-top') AS a, automation.start_run('u-top') AS b \gset
SELECT automation.drain();
SELECT automation.skip_step(:a) = :a, automation.drain();
SELECT told(:a);
SELECT automation.drop_automation('u-top');
SELECT status, ended_reason FROM automation.runs WHERE parent IN (:a, :b);
SELECT name FROM automation.define('u-stop', trigger => automation.on_call(), steps => ARRAY[automation.parallel(ARRAY[automation.run('u-5', id => 'c'), automation.stop()])]);
SELECT automation.start_run('u-stop') AS a \gset
SELECT automation.drain();
SELECT told(:a);
SELECT status, ended_reason FROM automation.runs WHERE parent = :a;
-- one that runs itself comes to an end
SELECT name, notices FROM automation.define('u-self', trigger => automation.on_call(), breaker => 0, steps => ARRAY[automation.run('u-self', id => 'c')]);
SELECT automation.start_run('u-self') AS a \gset
SELECT automation.drain();
SELECT status, ended_reason, count(*) FROM automation.runs WHERE automation = 'u-self' GROUP BY 1, 2 ORDER BY 1;
\i :check
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'u-%';
SELECT automation.drain();
\i :check
SELECT count(*) FROM automation_internal.run;
SET client_min_messages = warning;
DROP SCHEMA sub CASCADE;
