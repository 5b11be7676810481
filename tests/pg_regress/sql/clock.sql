-- Whole automations inside one transaction that is rolled back: set_clock, advance, drain.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv dir PG_ABS_SRCDIR
\set show :dir '/check/show.sql'
\set check :dir '/check/waits.sql'
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
CREATE SCHEMA clock;
SET search_path = clock, public;
\i :show
CREATE TABLE orders (id int PRIMARY KEY, status text, reminded int DEFAULT 0);
SELECT automation.watch_table('orders', kind => 'c_orders');
-- what can be set; it is undone with the transaction
SELECT tried(s) FROM unnest(ARRAY[$$ SELECT automation.set_clock('infinity') $$, $$ SELECT automation.set_clock('-infinity') $$, $$ SELECT automation.set_clock('4714-11-24 00:00:00 BC') $$, $$ SELECT automation.set_clock('294276-12-31') $$,
    $$ SELECT automation.set_clock('9999-12-31 23:59:59.999999+00') $$, $$ SELECT automation.advance('1 microsecond') $$, $$ SELECT automation.set_clock('0001-01-01 00:00+00') $$,
    $$ SELECT automation.set_clock('2030-01-01 12:00+00') $$, $$ SELECT automation.advance('-1 second') $$, $$ SELECT automation.advance('0') $$, $$ SELECT automation.advance('1 month') $$, $$ SELECT automation.advance('170000000 years') $$, $$ SELECT automation.advance(NULL) $$]) AS s;
SELECT automation.set_clock(NULL) IS NULL;
BEGIN;
SELECT automation.set_clock('2030-01-01 12:00+00');
ROLLBACK;
SELECT automation.advance('0') < '2030-01-01';
SELECT automation.set_clock(NULL) IS NULL;
-- a value that set_clock() would refuse is not gone by
SET automation_engine.clock = 'tomorrow';
SELECT automation.advance('0') BETWEEN now() - interval '1 minute' AND now() + interval '1 minute';
SET automation_engine.clock = '9223372036854775807';
SELECT automation.advance('0') BETWEEN now() - interval '1 minute' AND now() + interval '1 minute';
SELECT count(*) FROM automation.timers;
RESET automation_engine.clock;
-- an order that is not paid is reminded of twice, then cancelled; paid in between, it is shipped
BEGIN;
SELECT automation.set_clock('2030-03-01 09:00+00');
SELECT name FROM automation.define('c-remind', trigger => automation.on_created('c_orders'), key => 'new.id', timeout => '10 days', steps => ARRAY[
    automation.repeat_while($$ state.c_orders[new.id].status = 'new' and repeat.index <= 2 $$, ARRAY[
        automation.wait_until($$ state.c_orders[new.id].status = 'paid' $$, timeout => '1 day', id => 'paid'),
        automation.sql($$ UPDATE orders SET reminded = reminded + 1 WHERE id = {{ new.id }} $$, id => 'remind', condition => 'wait.timed_out')], id => 'loop'),
    automation.choose(ARRAY[automation.when_holds($$ state.c_orders[new.id].status = 'paid' $$, ARRAY[automation.sql($$ UPDATE orders SET status = 'shipped' WHERE id = {{ new.id }} $$, id => 'ship')])],
        otherwise => ARRAY[automation.sql($$ UPDATE orders SET status = 'cancelled' WHERE id = {{ new.id }} $$, id => 'cancel')])]);
INSERT INTO orders VALUES (1, 'new'), (2, 'new'), (3, 'paid');
SELECT automation.drain();
SELECT * FROM orders ORDER BY id;
SELECT key, step, since, deadline, refs FROM automation.waiting WHERE automation = 'c-remind' ORDER BY key;
SELECT run_id IS NOT NULL, due_at, due_in, reason FROM automation.timers WHERE automation = 'c-remind' AND reason <> 'arm' ORDER BY 2, 4;
SELECT automation.advance('23:59:59'), automation.drain();
SELECT automation.advance('1 second'), automation.drain();
SELECT * FROM orders ORDER BY id;
UPDATE orders SET status = 'paid' WHERE id = 1;
SELECT automation.drain();
SELECT automation.advance('1 day'), automation.drain();
SELECT * FROM orders ORDER BY id;
SELECT key, status, started_at, took, ended_at FROM automation.runs WHERE automation = 'c-remind' ORDER BY key;
SELECT told(id) FROM automation.runs WHERE automation = 'c-remind' AND key = '1';
\i :check
ROLLBACK;
SELECT count(*) FROM automation.automations WHERE name = 'c-remind';
SELECT count(*) FROM orders;
SELECT (SELECT count(*) FROM automation_internal.run) AS runs, (SELECT count(*) FROM automation_internal.timer) AS timers, (SELECT count(*) FROM automation_internal.wake_index) AS wakes, (SELECT count(*) FROM automation_internal.dispatch) AS dispatches;
-- set back: what was due is due again at its time, and never early
SELECT name FROM automation.define('c-delay', trigger => automation.on_call(), steps => ARRAY[automation.delay('1 hour', id => 'd')]);
SELECT automation.set_clock('2030-01-01 12:00+00');
SELECT automation.start_run('c-delay') AS a \gset
SELECT automation.drain();
SELECT automation.advance('1 hour');
SELECT automation.run_timers();
SELECT automation.set_clock('2030-01-01 12:30+00');
SELECT automation.drain();
SELECT told(:a);
SELECT due_at, due_in, reason FROM automation.timers WHERE run_id = :a;
\i :check
SELECT automation.advance('30 minutes'), automation.drain();
SELECT told(:a);
-- savepoints: what is rolled back did not wait
BEGIN;
SAVEPOINT s;
SELECT automation.start_run('c-delay') AS a \gset
SELECT automation.drain();
ROLLBACK TO s;
SELECT count(*) FROM automation.waiting;
COMMIT;
SELECT automation.drain();
\i :check
SELECT automation.drop_automation('c-delay');
SELECT automation.set_clock(NULL) IS NULL;
SELECT automation.unwatch_table('orders');
SET client_min_messages = warning;
DROP SCHEMA clock CASCADE;
