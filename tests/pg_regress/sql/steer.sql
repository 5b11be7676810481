-- Steering runs: signals, skipping, cancelling, pausing, dropping, new versions; and who may (dead letters: R002-11).
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv dir PG_ABS_SRCDIR
\set show :dir '/check/show.sql'
\set check :dir '/check/waits.sql'
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
CREATE SCHEMA steer;
SET search_path = steer, public;
\i :show
SELECT automation.set_clock('2030-01-01 12:00+00');
-- signals: early ones are kept, each is taken by one run, by name and by key; to nobody is no error
SELECT name FROM automation.define('s-signal', trigger => automation.on_call(), key => 'payload.k', steps => ARRAY[
    automation.wait_signal('s-go', timeout => '1 hour', id => 'w'), automation.sql('SELECT {{ wait.payload }}::jsonb AS p, {{ steps.w.payload.x }}::int AS x', id => 'e')]);
SELECT automation.signal('s-go', '{"x": 1}', 'a') > 0;
SELECT automation.signal('s-nobody') > 0;
SELECT automation.start_run('s-signal', '{"k": "a"}') AS a, automation.start_run('s-signal', '{"k": "b"}') AS b, automation.start_run('s-signal') AS c \gset
SELECT automation.drain();
SELECT told(r) FROM unnest(ARRAY[:a, :b, :c]) AS r;
SELECT waiting_for, key, deadline FROM automation.waiting WHERE automation = 's-signal' ORDER BY run_id;
SELECT automation.signal('s-go', '{"x": 2}', 'nobodys key') > 0;
SELECT automation.drain();
-- a run without a key takes any
SELECT told(r) FROM unnest(ARRAY[:b, :c]) AS r;
-- without a key it is for anyone, but for one
SELECT automation.start_run('s-signal', '{"k": "c"}') AS c \gset
SELECT automation.drain();
SELECT automation.signal('s-go', '{"x": 3}') > 0;
SELECT automation.drain();
SELECT status, count(*) FROM automation.runs WHERE id IN (:b, :c) GROUP BY 1 ORDER BY 1;
SELECT automation.advance('1 hour'), automation.drain();
SELECT told(:c);
SELECT name, key, payload FROM automation_internal.signal ORDER BY id;
-- a signal is undone with its transaction, and is sent once
BEGIN;
SELECT automation.signal('s-go', '{"x": 4}', 'd') > 0;
ROLLBACK;
SELECT automation.start_run('s-signal', '{"k": "d"}') AS d \gset
SELECT automation.drain();
SELECT told(:d);
-- one that came in time beats the timeout, also if both are looked at together
SELECT automation.signal('s-go', '{"x": 5}', 'd') > 0;
SELECT automation.advance('1 hour'), automation.run_timers(), automation.drain();
SELECT told(:d);
-- bad signals
SELECT tried(s) FROM unnest(ARRAY['SELECT automation.signal(NULL)', $$ SELECT automation.signal('') $$, $$ SELECT automation.signal(repeat('x', 1000000)) $$,
    $$ SELECT automation.signal('a', key => repeat('k', 1001)) $$, $$ SELECT automation.signal('a', '"text"') > 0 $$, $$ SELECT automation.signal('a', NULL) > 0 $$, $$ SELECT automation.signal('a', key => '') > 0 $$]) AS s;
DELETE FROM automation_internal.signal;
-- what a run renders and cannot be a signal fails that run alone
SELECT name FROM automation.define('s-render', trigger => automation.on_call(), steps => ARRAY[automation.wait_signal('{{ payload.name }}', key => '{{ payload.key }}', id => 'w')]);
SELECT automation.start_run('s-render') AS a, automation.start_run('s-render', jsonb_build_object('name', repeat('x', 1001))) AS b, automation.start_run('s-render', jsonb_build_object('name', 'x', 'key', repeat('x', 1001))) AS c \gset
SELECT automation.drain();
SELECT told(r) FROM unnest(ARRAY[:a, :b, :c]) AS r;

-- skip_step: the step it waits at, by name where there are several; only while it waits
SELECT name FROM automation.define('s-two', trigger => automation.on_call(), steps => ARRAY[automation.parallel(ARRAY[automation.delay('1 hour', id => 'a'), automation.wait_signal('s-x', id => 'b')]), automation.sql('SELECT {{ steps.a.skipped }}::bool AS skipped', id => 'e')]);
SELECT automation.start_run('s-two') AS a \gset
SELECT automation.drain();
SELECT tried(format('SELECT automation.skip_step(%s)', :a));
SELECT tried(format('SELECT automation.skip_step(%s, %L)', :a, 'nowhere'));
SELECT automation.skip_step(:a, 'a') = :a, automation.drain();
SELECT told(:a);
-- asked twice before it is done: done once
SELECT automation.skip_step(:a) = :a, automation.skip_step(:a) = :a, automation.drain();
SELECT told(:a);
SELECT tried(s) FROM unnest(ARRAY[format('SELECT automation.skip_step(%s)', :a), 'SELECT automation.skip_step(-1)', 'SELECT automation.skip_step(NULL)', format('SELECT automation.retry_run(%s)', :a), 'SELECT automation.retry_run(NULL)', 'SELECT automation.retry_run(-1)']) AS s;
-- cancel, then the thing it waited for happens; cancel again; cancel what has ended
SELECT automation.start_run('s-two') AS b \gset
SELECT automation.drain();
SELECT automation.cancel_run(:b);
SELECT automation.signal('s-x') > 0;
SELECT automation.advance('1 hour'), automation.drain();
SELECT told(:b);
SELECT automation.cancel_run(:b);
SELECT regexp_replace(tried(format('SELECT automation.cancel_run(%s)', :a)), ' at .*', '');
DELETE FROM automation_internal.signal;
-- cancel between the wake and its handling
SELECT automation.start_run('s-two') AS b \gset
SELECT automation.drain();
SELECT automation.signal('s-x') > 0;
SELECT automation.route() > 0;
SELECT automation.cancel_run(:b);
SELECT automation.drain();
SELECT told(:b);
DELETE FROM automation_internal.signal;
-- by a filter: queued and waiting ones alike
SELECT count(automation.start_run('s-signal', jsonb_build_object('k', i))) FROM generate_series(1, 4) AS i;
SELECT automation.drain();
SELECT automation.start_run('s-signal', '{"k": 5}') > 0;
SELECT automation.route() > 0;
SELECT automation.cancel_run(filter => $$ run.automation = 's-signal' and (run.key in ['2', '3'] or run.status = 'pending') $$);
SELECT key, status FROM automation.runs WHERE automation = 's-signal' ORDER BY id DESC LIMIT 5;
SELECT tried(s) FROM unnest(ARRAY[$$ SELECT automation.cancel_run(filter => 'run.statsu = 1') $$, $$ SELECT automation.cancel_run(filter => 'run.status =') $$, $$ SELECT automation.cancel_run(filter => '1') $$,
    $$ SELECT automation.cancel_run(filter => '') $$, $$ SELECT automation.cancel_run(filter => 'state.x[1].y = 1') $$, $$ SELECT automation.cancel_run(filter => 'new.id = 1') $$, $$ SELECT automation.cancel_run(filter => 'run.key = null') $$]) AS s;
SELECT automation.cancel_run(filter => $$ run.automation = 's-signal' $$);
\i :check

-- R003-13: pause. drain: the next step that comes due cancels the run; finish: it goes on; freeze: it stays until resumed
SELECT name FROM unnest('{drain,finish,freeze}'::text[]) AS m, automation.define('s-' || m, trigger => automation.on_call(), on_pause => m, steps => ARRAY[automation.delay('1 hour', id => 'd'), automation.sql('SELECT 1 AS one', id => 'e')]);
SELECT automation.start_run('s-drain') AS a, automation.start_run('s-finish') AS b, automation.start_run('s-freeze') AS c \gset
SELECT automation.drain();
SELECT ok, applied FROM unnest('{drain,finish,freeze}'::text[]) AS m, automation.pause('s-' || m);
SELECT automation.drain();
SELECT told(r) FROM unnest(ARRAY[:a, :b, :c]) AS r;
SELECT automation.advance('1 hour'), automation.drain();
SELECT told(r) FROM unnest(ARRAY[:a, :b, :c]) AS r;
\i :check
SELECT tried(format('SELECT automation.skip_step(%s)', :c));
SELECT automation.advance('1 day'), automation.drain();
SELECT told(:c);
SELECT ok FROM automation.resume('s-freeze');
SELECT automation.drain();
SELECT told(:c);
-- frozen before its first step; cancelled while frozen; resumed twice
SELECT automation.start_run('s-freeze') AS c, automation.start_run('s-freeze') AS d \gset
SELECT automation.route() > 0;
SELECT ok FROM automation.pause('s-freeze');
SELECT automation.drain();
SELECT told(:c);
SELECT automation.cancel_run(:d);
SELECT ok FROM automation.resume('s-freeze');
SELECT ok FROM automation.resume('s-freeze');
SELECT automation.drain();
SELECT told(:c);
SELECT automation.cancel_run(:c);
-- drop: runs cancelled, or let finish, also frozen ones
SELECT name FROM automation.define('s-drop', trigger => automation.on_call(), steps => ARRAY[automation.delay('1 hour', id => 'd'), automation.sql('SELECT 1 AS one', id => 'e')]);
SELECT automation.start_run('s-drop') AS a, automation.start_run('s-freeze') AS b \gset
SELECT automation.drain();
SELECT ok FROM automation.pause('s-freeze');
SELECT automation.advance('1 hour'), automation.drain();
SELECT told(:b);
SELECT automation.start_run('s-drop') AS a \gset
SELECT automation.drain();
SELECT automation.drop_automation('s-drop'), automation.drop_automation('s-freeze', runs => 'finish');
SELECT automation.drain();
SELECT told(r) FROM unnest(ARRAY[:a, :b]) AS r;
\i :check
SELECT name FROM automation.define('s-drop', trigger => automation.on_call(), steps => ARRAY[automation.delay('1 hour', id => 'd'), automation.sql('SELECT 1 AS one', id => 'e')]);
SELECT automation.start_run('s-drop') AS a \gset
SELECT automation.drain();
SELECT automation.drop_automation('s-drop', runs => 'finish');
SELECT automation.advance('1 hour'), automation.drain();
SELECT told(:a);
-- a run finishes on the version it started with
SELECT version FROM automation.define('s-version', trigger => automation.on_call(), steps => ARRAY[automation.delay('1 hour', id => 'd'), automation.sql('SELECT 1 AS old', id => 'e')]);
SELECT automation.start_run('s-version') AS a \gset
SELECT automation.drain();
SELECT version FROM automation.define('s-version', trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 2 AS new', id => 'e')]);
SELECT version, current, created_by, runs, jsonb_array_length(document -> 'steps') FROM automation.versions('s-version');
SELECT automation.start_run('s-version') AS b \gset
SELECT automation.advance('1 hour'), automation.drain();
SELECT told(r) FROM unnest(ARRAY[:a, :b]) AS r;
SELECT version, current, runs FROM automation.versions('s-version');
SELECT tried($$ SELECT * FROM automation.versions('nothing') $$);

-- who may: nobody sees, signals, skips, cancels or retries another's runs
CREATE ROLE regress_s_ann LOGIN;
CREATE ROLE regress_s_bob LOGIN;
SELECT automation.grant_usage('regress_s_ann', 'author'), automation.grant_usage('regress_s_bob', 'author');
GRANT USAGE, CREATE ON SCHEMA steer TO regress_s_ann, regress_s_bob;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA steer TO regress_s_ann, regress_s_bob;
SET ROLE regress_s_ann;
SELECT name FROM automation.define('s-ann', trigger => automation.on_call(), steps => ARRAY[automation.wait_signal('s-ann', timeout => '1 hour', id => 'w'), automation.sql('SELECT 1 / 0', id => 'bad')]);
SELECT automation.start_run('s-ann') AS a \gset
SELECT automation.drain();
SELECT told(:a);
SET ROLE regress_s_bob;
SELECT count(*) FROM automation.runs WHERE automation = 's-ann';
SELECT count(*) FROM automation.waiting WHERE automation = 's-ann';
SELECT count(*) FROM automation.timers WHERE automation = 's-ann';
SELECT count(*) FROM automation.run_steps WHERE run_id = :a;
SELECT tried(format(s, :a)) FROM unnest(ARRAY['SELECT automation.cancel_run(%s)', 'SELECT automation.skip_step(%s)', 'SELECT automation.retry_run(%s)', 'SELECT * FROM automation.timeline(%s)', $$ SELECT automation.versions('s-ann') $$, $$ SELECT automation.cancel_run(filter => 'true') $$, $$ SELECT automation.start_run('s-ann') $$]) AS s;
-- his signal of that name is not for her run, and his clock does not move her timers
SELECT automation.signal('s-ann', '{"from": "bob"}') > 0;
SELECT automation.set_clock('2040-01-01'), automation.drain();
SELECT name FROM automation.define('s-bob', trigger => automation.on_call(), steps => ARRAY[automation.run('s-ann', id => 'r')]);
SELECT automation.start_run('s-bob') AS b \gset
SELECT automation.drain();
SELECT told(:b);
RESET ROLE;
SELECT automation.set_clock('2030-01-10 12:00+00');
SELECT told(:a);
SET ROLE regress_s_ann;
SELECT automation.signal('s-ann', '{"from": "ann"}') > 0;
SELECT automation.drain();
SELECT told(:a);
SET ROLE regress_s_bob;
SELECT tried(format('SELECT automation.retry_run(%s)', :a)), tried(format('SELECT automation.skip_step(%s)', :a));
SET ROLE regress_s_ann;
SELECT automation.skip_step(:a) > :a, automation.drain();
RESET ROLE;
DELETE FROM automation_internal.signal;
-- the tiers: an operator steers but does not define, a viewer looks
SELECT automation.revoke_usage('regress_s_bob');
SELECT automation.grant_usage('regress_s_bob', 'operator');
SET ROLE regress_s_bob;
SELECT has_function_privilege(p.oid, 'EXECUTE') AS may, string_agg(DISTINCT p.proname::text, ' ' ORDER BY p.proname::text) FROM pg_proc AS p
 WHERE p.pronamespace = 'automation'::regnamespace AND p.proname IN ('signal', 'skip_step', 'retry_run', 'cancel_run', 'redrive', 'versions', 'set_clock', 'advance', 'drain', 'run_timers', 'define', 'wait_until', 'delay') GROUP BY 1 ORDER BY 1;
RESET ROLE;
SELECT automation.revoke_usage('regress_s_bob');
SELECT automation.grant_usage('regress_s_bob', 'viewer');
SET ROLE regress_s_bob;
SELECT has_function_privilege(p.oid, 'EXECUTE') AS may, string_agg(DISTINCT p.proname::text, ' ' ORDER BY p.proname::text) FROM pg_proc AS p
 WHERE p.pronamespace = 'automation'::regnamespace AND p.proname IN ('signal', 'skip_step', 'retry_run', 'cancel_run', 'redrive', 'versions', 'set_clock', 'advance', 'drain', 'run_timers', 'define', 'wait_until', 'delay') GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM automation.waiting;
RESET ROLE;
\i :check
-- a run cannot cancel itself, drive the engine, or end others of its batch behind their back
SELECT name FROM automation.define('s-itself', trigger => automation.on_event('s.itself'), steps => ARRAY[
    automation.sql('SELECT automation.cancel_run({{ run.id }}::bigint)', id => 'cancel', continue_on_error => true),
    automation.sql('SELECT automation.drain()', id => 'drain', continue_on_error => true),
    automation.sql('SELECT automation.dispatch()', id => 'dispatch', continue_on_error => true),
    automation.sql($$ SELECT automation.cancel_run('run.automation = "s-itself"') AS n $$, id => 'others')]);
SELECT automation.emit('s.itself') > 0;
SELECT automation.drain();
SELECT status, ended_reason, steps FROM automation.runs WHERE automation = 's-itself';
SELECT step, status, regexp_replace(error, '\d+', 'N') FROM automation.run_steps WHERE run_id = (SELECT max(id) FROM automation.runs WHERE automation = 's-itself') ORDER BY seq;
SELECT entered, completed, cancelled, active FROM automation.stat_automations WHERE automation = 's-itself';
SELECT name FROM automation.define('s-leaves', trigger => automation.on_event('s.leaves'), steps => ARRAY[automation.delay('1 second'), automation.sql($$ SELECT automation.drop_automation('s-leaves') $$)]);
SELECT automation.emit('s.leaves') > 0;
SELECT automation.drain();
SELECT automation.advance('1 second') IS NOT NULL, automation.drain();
SELECT status, ended_reason, count(*) FROM automation.runs WHERE automation = 's-leaves' GROUP BY 1, 2;
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 's-%';
SELECT automation.drain();
\i :check
SELECT automation.revoke_usage('regress_s_ann'), automation.revoke_usage('regress_s_bob');
SET client_min_messages = warning;
DROP SCHEMA steer CASCADE;
DROP OWNED BY regress_s_ann, regress_s_bob;
DROP ROLE regress_s_ann, regress_s_bob;
