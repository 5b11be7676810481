-- Control flow: branches, choices, loops, lanes, stops; Home Assistant's script semantics.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv dir PG_ABS_SRCDIR
\set show :dir '/check/show.sql'
\set check :dir '/check/waits.sql'
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
CREATE SCHEMA flow;
SET search_path = flow, public;
\i :show
SELECT automation.set_clock('2030-01-01 12:00+00');
-- defines an automation, runs it to its end or first wait, and tells what happened
CREATE FUNCTION go(steps automation.step[], payload jsonb DEFAULT '{}', max_steps int DEFAULT NULL) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    run bigint;
BEGIN
    PERFORM automation.define('f-go', trigger => automation.on_call(), steps => go.steps, max_steps => go.max_steps);
    run := automation.start_run('f-go', payload);
    PERFORM automation.drain();
    RETURN QUERY SELECT told(run);
END $$;
CREATE FUNCTION say(what text, id text DEFAULT NULL) RETURNS automation.step LANGUAGE sql AS $$ SELECT automation.sql('SELECT ' || what || ' AS said', id => id) $$;

-- branch: forwards, with what is bypassed recorded as skipped (R003-37); backwards; neither way named (R003-33)
SELECT go(ARRAY[automation.branch('payload.n > 1', yes => 'c', id => 'b'), say('1', 'a'), automation.sequence(ARRAY[say('2', 'inner')], id => 'block'), say('3', 'c')], '{"n": 2}');
SELECT go(ARRAY[automation.branch('payload.n > 1', yes => 'c', id => 'b'), say('1', 'a'), say('3', 'c')], '{"n": 1}');
SELECT go(ARRAY[automation.branch('payload.n > 1', no => 'c', id => 'b'), say('1', 'a'), say('3', 'c')], '{"n": 1}');
SELECT go(ARRAY[automation.set('{"n": 0}'), automation.sequence(ARRAY[say('1', 'inner')], id => 'again'), automation.set('{"n": "{{ vars.n + 1 }}"}', id => 'count'), automation.branch('vars.n < 2', yes => 'again', id => 'b')]);
-- out of a block: what it had set is gone
SELECT go(ARRAY[automation.set('{"v": 1}'), automation.repeat_count(5, ARRAY[automation.set('{"v": 2}'), automation.branch('repeat.index = 2', yes => 'out', id => 'b')]), say('1', 'never'), say('{{ vars.v }}::int', 'out')]);
-- R003-10: a loop that never ends; the cap can be raised
SELECT go(ARRAY[say('1', 'a'), automation.branch('true', yes => 'a', id => 'b')]) LIMIT 1;
SELECT steps, status, ended_reason, message, hint FROM automation.runs WHERE automation = 'f-go' ORDER BY id DESC LIMIT 1;
SELECT step, status, error FROM automation.run_steps WHERE run_id = (SELECT max(id) FROM automation.runs) ORDER BY seq DESC LIMIT 1;
SELECT go(ARRAY[automation.repeat_while('repeat.index <= 120', ARRAY[automation.set('{"a": 1}')])], max_steps => 121) LIMIT 1;
SELECT go(ARRAY[automation.repeat_while('repeat.index <= 120', ARRAY[automation.set('{"a": 1}')])], max_steps => 120) LIMIT 1;
-- the rounds of a loop that ends by itself do not add up; what does not end inside of a round does
SELECT go(ARRAY[automation.repeat_count(120, ARRAY[automation.set('{"a": 1}'), say('1')])], max_steps => 3) LIMIT 1;
SELECT go(ARRAY[automation.repeat_count(120, ARRAY[automation.set('{"a": 1}'), say('1')])], max_steps => 2) LIMIT 1;
SELECT go(ARRAY[automation.for_each('[1, 2]', ARRAY[automation.repeat_until('false', ARRAY[automation.set('{"a": 1}')])])]) LIMIT 1;
-- choose: the first way that holds; none; the rest
SELECT go(ARRAY[automation.choose(ARRAY[automation.when_holds('payload.n = 1', ARRAY[say('1', 'one')]), automation.when_holds('payload.n < 3', ARRAY[say('2', 'few')])], otherwise => ARRAY[say('3', 'many')], id => 'c')], jsonb_build_object('n', n)) FROM generate_series(1, 3) AS n;
SELECT go(ARRAY[automation.choose(ARRAY[automation.when_holds('false', ARRAY[say('1', 'one')])], id => 'c'), say('2', 'after')]);
-- loops: repeat.index, first, last, item; 0 rounds; while before, until after; a loop in a loop
SELECT go(ARRAY[automation.repeat_count(3, ARRAY[automation.sql('SELECT {{ repeat.index }}::int AS i, {{ repeat.first }}::bool AS first, {{ repeat.last }}::bool AS last', id => 's')], id => 'r')]);
SELECT go(ARRAY[automation.repeat_count('payload.n', ARRAY[say('1', 's')], id => 'r')], '{"n": 0}');
SELECT go(ARRAY[automation.for_each('["a", {"b": 1}]', ARRAY[automation.for_each('[1, 2]', ARRAY[say('{{ repeat.item }}::text', 's')]), say('{{ repeat.item }}::text', 'outer')], id => 'r')]);
SELECT go(ARRAY[automation.for_each('payload.list', ARRAY[say('1', 's')], id => 'r')], p) FROM unnest(ARRAY['{"list": []}', '{}', '{"list": "abc"}', '{"list": {"a": 1}}']::jsonb[]) AS p;
SELECT go(ARRAY[automation.repeat_while('false', ARRAY[say('1', 's')], id => 'r')]);
SELECT go(ARRAY[automation.repeat_until('true', ARRAY[say('1', 's')], id => 'r')]);
SELECT go(ARRAY[automation.repeat_while('repeat.index <= 2', ARRAY[say('1', 's')], id => 'r')]);
-- the list is fixed at entry
SELECT go(ARRAY[automation.set('{"l": [1, 2]}'), automation.for_each('vars.l', ARRAY[automation.set('{"l": []}'), say('{{ repeat.item }}::int', 's')], id => 'r')]);
-- 10,000 rounds and no more
SELECT go(ARRAY[automation.repeat_while('true', ARRAY[automation.set('{"a": 1}')], id => 'r')], max_steps => 1000000) LIMIT 1;
SELECT go(ARRAY[automation.sql('SELECT array_agg(i) AS l FROM generate_series(1, 10001) AS i', id => 'q'), automation.for_each('steps.q.row.l', ARRAY[say('1')], id => 'r')]) LIMIT 1;
SELECT go(ARRAY[automation.sql('SELECT array_agg(i) AS l FROM generate_series(1, 10000) AS i', id => 'q'), automation.for_each('steps.q.row.l', ARRAY[automation.set('{"a": "{{ repeat.item }}"}')], id => 'r')]) LIMIT 1;
SELECT go(ARRAY[automation.repeat_count('payload.n', ARRAY[say('1')], id => 'r')], jsonb_build_object('n', n)) FROM unnest(ARRAY[-1, 2.5, 10001]) AS n;
-- parallel: all start, one that fails stops no other, the step fails when all are done, variables are not shared
SELECT go(ARRAY[automation.set('{"v": 0}'), automation.parallel(ARRAY[
    automation.sequence(ARRAY[automation.set('{"v": 1}'), say('{{ vars.v }}::int', 'a')]), say('1/0', 'bad'), automation.sequence(ARRAY[say('{{ vars.v }}::int', 'b'), say('2', 'c')])], id => 'p'), say('3', 'never')]);
SELECT go(ARRAY[automation.parallel(ARRAY[say('1/0', 'bad'), say('1', 'good')], id => 'p', continue_on_error => true), say('{{ steps.p.error.message }}::text', 'after')]);
-- require ends the sequence it stands in: a round, a way, a lane, the run; stop ends the run from anywhere
SELECT go(ARRAY[automation.repeat_count(2, ARRAY[automation.require('repeat.index = 2', id => 'q'), say('1', 'in')]), automation.parallel(ARRAY[automation.sequence(ARRAY[automation.require('false', id => 'l'), say('1', 'never')]), say('2', 'lane')]), automation.require('false', id => 'r'), say('1', 'never_too')]);
SELECT go(ARRAY[automation.parallel(ARRAY[automation.delay('1 hour', id => 'd'), automation.repeat_count(2, ARRAY[automation.stop(s, 'because {{ payload.why }}', id => 's')])]), say('1', 'never')], '{"why": "of that"}') FROM unnest('{completed,failed,cancelled,NULL}'::text[]) AS s;
-- set: in order, local to its block, the run's own are its output; enabled => false and a condition skip (R003-35)
SELECT go(ARRAY[automation.set('{"a": 1, "b": "{{ vars.a + 1 }}", "c": {"d": ["{{ vars.b }}", "x {{ vars.b }}"]}}'), automation.sequence(ARRAY[automation.set('{"a": 9}'), say('{{ vars.a }}::int', 'in')]), say('{{ vars }}::jsonb', 'out'), automation.sql('SELECT 1', id => 'off', enabled => false), automation.sql('SELECT 1', id => 'no', condition => 'false'), automation.sequence(ARRAY[say('1', 'inside')], id => 'whole', condition => 'vars.a = 2')]);
-- R001-33: results of steps, of any type; reusable logic with call
CREATE FUNCTION twice(args jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('n', (args ->> 'n')::numeric * 2) $$;
SELECT go(ARRAY[automation.sql($$ SELECT 1.10::numeric AS n, '2030-01-01 10:00+00'::timestamptz AS at, '{a,b}'::text[] AS l, '{"k": null}'::jsonb AS j, 'x'::bytea AS b, NULL::int AS nothing, int4range(1, 5) AS r, '1 day'::interval AS i $$, id => 'q'),
    automation.sql($$ SELECT i FROM generate_series(1, 3) AS i $$, id => 'many'), automation.call('twice', '{"n": steps.q.row.n}', id => 'c'),
    automation.sql($$ SELECT {{ steps.many.count }}::int AS count, {{ steps.many.rows }}::jsonb AS rows, {{ steps.c.result.n }}::numeric AS twice, {{ steps.q.row.at }}::timestamptz AS at, {{ steps.nothing.row }}::text AS missing $$)]);
-- 300 MB: cut off, and it says so
SELECT go(ARRAY[automation.sql($$ SELECT repeat('x', 300000000) AS x $$, id => 'big'), automation.sql($$ SELECT {{ steps.big.truncated }}::bool AS truncated, {{ steps.big.row.x }}::text IS NULL AS gone $$)]);
-- store_state, publish and notify are steps like others
SELECT go(ARRAY[automation.store_state('f_kind', '{{ payload.id }}', '{"v": payload.id + 1}', id => 's'), say('automation.state($x$f_kind$x$, $x$7$x$)', 'read'), automation.store_state('f_kind', '7', 'null', id => 'gone'), say('automation.state($x$f_kind$x$, $x$7$x$)', 'read2')], '{"id": 7}');
\i :check
SELECT automation.cancel_run(filter => $$ run.automation = 'f-go' $$);
SELECT automation.drop_automation('f-go');
\i :check
SET client_min_messages = warning;
DROP SCHEMA flow CASCADE;
