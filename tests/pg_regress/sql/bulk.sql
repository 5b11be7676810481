-- Backfills and bulk steps (R002-21): rows, gates, pace, approval, cancelling, pausing, failures, bad input, rights.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv dir PG_ABS_SRCDIR
\set show :dir '/check/show.sql'
\set check :dir '/check/waits.sql'
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
CREATE SCHEMA bulk;
SET search_path = bulk, public;
\i :show
\set ECHO none
-- The newest job and its rows, without numbers that vary.
CREATE FUNCTION job() RETURNS bigint LANGUAGE sql AS 'SELECT max(job) FROM automation.progress';
CREATE FUNCTION far() RETURNS text LANGUAGE sql AS $$
    SELECT p.automation || ' ' || p.state || coalesce(' of ' || p.total, '') || ': ' || p.done || ' done, ' || p.failed || ' failed, '
           || p.skipped || ' skipped, ' || p.cancelled || ' cancelled, ' || p.active || ' active' || coalesce(', error ' || p.error, '')
      FROM automation.progress AS p WHERE p.job = job() $$;
CREATE FUNCTION items() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT i.no || ' ' || i.status || ' ' || coalesce(left(i.data::text, 40), 'nothing') || coalesce(': ' || i.error, '')
      FROM automation.bulk_items AS i WHERE i.job = job() ORDER BY i.no $$;
CREATE FUNCTION summary() RETURNS SETOF text LANGUAGE sql AS $$
    SELECT (e.payload - 'job' - 'seconds' - 'run_id')::text FROM automation.events AS e
     WHERE e.topic = 'automation.bulk.finished' AND (e.payload ->> 'job')::bigint = job() $$;
\set ECHO all
CREATE TABLE orders (id int PRIMARY KEY, status text, total numeric);
CREATE TABLE effect (seq int GENERATED ALWAYS AS IDENTITY, note text);
SELECT automation.watch_table('orders');
SET automation_engine.capture = off;
INSERT INTO orders VALUES (1, 'new', 10), (2, 'paid', 20), (3, 'paid', 300), (4, 'new', 40), (5, 'paid', 50);
RESET automation_engine.capture;
SELECT automation.drain();
SELECT automation.set_clock('2030-01-01 12:00+00');

-- each row is an entity that has just got all its values: filter and condition say which get a run (R002-21)
SELECT name FROM automation.define('b-paid', trigger => automation.on_updated('orders', columns => '{status}', filter => $$ new.status becomes 'paid' $$),
  condition => 'new.total < 100', steps => ARRAY[automation.sql($$ INSERT INTO effect (note) VALUES ({{ event.topic }} || ' ' || {{ event.id }} || ' ' || {{ trigger.id }} || ' ' || coalesce({{ old.status }}, 'null') || ' to ' || {{ new.status }}) $$)]);
SELECT automation.backfill('b-paid', 'SELECT * FROM orders ORDER BY id') > 0;
SELECT far();
SELECT automation.drain() > 0;
SELECT far();
SELECT items();
SELECT summary();
SELECT note FROM effect ORDER BY seq;
SELECT entity, status, ended_reason, trigger FROM automation.runs WHERE automation = 'b-paid' ORDER BY id;
-- the row keeps its kind and key only if the query shows the table's own
SELECT name FROM automation.define('b-new', trigger => automation.on_created('orders'), steps => ARRAY[automation.sql($$ INSERT INTO effect (note) VALUES (coalesce({{ event.topic }}, '-') || ' ' || coalesce({{ event.id }}, '-') || ' ' || coalesce({{ new.id }}::text, '-') || ' ' || coalesce({{ payload.id }}::text, '-')) $$)]);
TRUNCATE effect;
SELECT automation.backfill('b-new', 'SELECT id, total FROM orders WHERE id = 1') > 0, automation.backfill('b-new', 'SELECT id + 0 AS id FROM orders WHERE id = 2') > 0, automation.backfill('b-new', 'SELECT total AS id FROM orders WHERE id = 3') > 0;
CREATE VIEW some_orders AS SELECT * FROM orders WHERE id > 3;
SELECT automation.backfill('b-new', 'SELECT * FROM some_orders WHERE id = 4') > 0, automation.backfill('b-new', 'SELECT * FROM some_orders WHERE id = 5', kind => 'orders') > 0;
SELECT automation.drain() > 0;
SELECT note FROM effect ORDER BY seq;
-- for a trigger on an event the rows are what it carries; for on_call they are payloads
SELECT name FROM automation.define('b-event', trigger => automation.on_event('price.changed', filter => 'payload.n > 1'), steps => ARRAY[automation.sql($$ INSERT INTO effect (note) VALUES ({{ event.topic }} || ' ' || {{ payload.n }}) $$)]);
SELECT name FROM automation.define('b-call', trigger => automation.on_call(), condition => 'payload.n > 1', steps => ARRAY[automation.sql($$ INSERT INTO effect (note) VALUES ({{ event.topic }} || ' ' || {{ payload.n }}) $$)]);
TRUNCATE effect;
SELECT automation.backfill('b-event', 'SELECT n FROM (VALUES (1), (2)) AS v (n)') > 0;
SELECT automation.drain() > 0, far();
SELECT automation.backfill('b-call', 'WITH v (n) AS (VALUES (1), (2)) SELECT n FROM v') > 0;
SELECT automation.drain() > 0, far();
SELECT note FROM effect ORDER BY seq;
-- no rows at all
SELECT automation.backfill('b-call', 'SELECT 1 AS n WHERE false') > 0;
SELECT automation.drain() >= 0, far(), (SELECT count(*) FROM summary());

-- keys of several columns, transitions, ranges and tenants are asked as for a change from nothing known
CREATE TABLE sensor (a int, b text, v numeric, status text, org text, PRIMARY KEY (a, b));
SELECT automation.watch_table('sensor', tenant_column => 'org');
SET automation_engine.capture = off;
INSERT INTO sensor SELECT g, 'x', g * 10, CASE WHEN g % 2 = 0 THEN 'on' ELSE 'off' END, CASE WHEN g < 4 THEN 'acme' ELSE 'other' END FROM generate_series(1, 5) AS g;
RESET automation_engine.capture;
SELECT name FROM automation.define('b-num', trigger => automation.on_numeric('sensor', 'v', above => 25), steps => ARRAY[automation.sql($$ INSERT INTO effect (note) VALUES ({{ event.id }} || ' of ' || {{ event.tenant }}) $$)]);
SELECT name FROM automation.define('b-to', trigger => automation.on_state('sensor', 'status', to_value => 'on'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT name FROM automation.define('b-from', trigger => automation.on_state('sensor', 'status', from_value => 'off', to_value => 'on'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT name FROM automation.define('b-acme', tenant => 'acme', trigger => automation.on_changed('sensor'), steps => ARRAY[automation.sql('SELECT 1')]);
TRUNCATE effect;
SELECT automation.backfill('b-num', 'SELECT * FROM sensor ORDER BY a') > 0;
SELECT automation.drain() > 0, far();
SELECT note FROM effect ORDER BY seq;
SELECT automation.backfill('b-to', 'SELECT * FROM sensor') > 0;
SELECT automation.drain() > 0, far();
SELECT automation.backfill('b-from', 'SELECT * FROM sensor') > 0;
SELECT automation.drain() >= 0, far();
SELECT automation.backfill('b-acme', 'SELECT * FROM sensor') > 0;
SELECT automation.drain() > 0, far();
SELECT count(*), count(run_id) FROM automation.bulk_items WHERE job = job();
SELECT DISTINCT tenant FROM automation.runs WHERE automation = 'b-acme';

-- rows that fail do not hold up the others; a failed row can be tried again, with its row
SELECT name FROM automation.define('b-fail', trigger => automation.on_created('orders'), steps => ARRAY[automation.sql($$ INSERT INTO effect (note) SELECT {{ new.id }} || ' ' || 100 / ({{ new.id }}::int - (SELECT count(*) FROM orders WHERE status = 'spare') - 2) $$, id => 'divide')]);
TRUNCATE effect;
SELECT automation.backfill('b-fail', 'SELECT * FROM orders WHERE id < 4 ORDER BY id DESC') > 0;
SELECT automation.drain() > 0, far();
SELECT items();
SELECT summary();
UPDATE orders SET status = 'spare' WHERE id = 4;
SELECT automation.retry_run((SELECT run_id FROM automation.bulk_items WHERE job = job() AND status = 'failed')) > 0;
SELECT automation.drain() > 0, far();
SELECT note FROM effect ORDER BY seq;

-- a pace: so many in a second, whenever somebody looks, and no burst after a long time
SELECT automation.backfill('b-call', 'SELECT n FROM generate_series(11, 30) AS n', rate => 2) > 0;
SELECT automation.drain() > 0, far();
SELECT automation.advance('1 second'), automation.drain() > 0, far();
SELECT automation.advance('500 milliseconds'), automation.drain() > 0, far();
SELECT rate_limit, rate BETWEEN 1 AND 4, eta BETWEEN '4 seconds' AND '16 seconds' FROM automation.progress WHERE job = job();
SELECT automation.advance('1 hour'), automation.drain() > 0, far();
SELECT automation.cancel_bulk(job());
SELECT automation.drain() >= 0, far();

-- approval: the rows are there and counted, and a person says whether to go on
SELECT automation.backfill('b-call', 'SELECT n FROM generate_series(1, 3) AS n', approve => true) > 0;
SELECT automation.drain() > 0, far();
SELECT items();
SELECT automation.approve_bulk(job());
SELECT automation.approve_bulk(job());
SELECT automation.drain() > 0, far();
SELECT automation.approve_bulk(job());
SELECT automation.cancel_bulk(job());
SELECT automation.backfill('b-call', 'SELECT n FROM generate_series(1, 3) AS n', approve => true) > 0;
SELECT automation.drain() > 0;
SELECT automation.cancel_bulk(job());
SELECT automation.cancel_bulk(job());
SELECT automation.approve_bulk(job());
SELECT automation.drain() >= 0, far();
SELECT automation.approve_bulk(job());
SELECT automation.cancel_bulk(job());
SELECT items();
SELECT summary();
SELECT automation.approve_bulk(-1);
SELECT automation.cancel_bulk(-1);
-- approved, and cancelled, before its query has run
SELECT automation.backfill('b-call', 'SELECT n FROM generate_series(1, 3) AS n', approve => true) > 0;
SELECT automation.approve_bulk(job()), far();
SELECT automation.drain() > 0, far();
SELECT automation.backfill('b-call', 'SELECT n FROM generate_series(1, 3) AS n') > 0;
SELECT automation.cancel_bulk(job()), far();
SELECT automation.drain() >= 0, far();

-- rows whose runs wait are under way; cancelling the job cancels them
SELECT name FROM automation.define('b-wait', trigger => automation.on_call(), steps => ARRAY[automation.delay('1 hour', condition => 'payload.n > 1'), automation.sql('INSERT INTO effect (note) VALUES ({{ payload.n }})')]);
TRUNCATE effect;
SELECT automation.backfill('b-wait', 'SELECT n FROM generate_series(1, 3) AS n') > 0;
SELECT automation.drain() > 0, far();
SELECT automation.advance('1 hour'), automation.drain() > 0, far();
SELECT automation.backfill('b-wait', 'SELECT n FROM generate_series(1, 3) AS n') > 0;
SELECT automation.drain() > 0, far();
SELECT automation.cancel_bulk(job()), far();
SELECT automation.drain() >= 0, far();
SELECT items();
SELECT count(*) FROM automation.runs WHERE automation = 'b-wait' AND status = 'waiting';
-- a run of a row that somebody cancels
SELECT automation.backfill('b-wait', 'SELECT n FROM generate_series(1, 2) AS n') > 0;
SELECT automation.drain() > 0;
SELECT automation.cancel_run((SELECT run_id FROM automation.bulk_items WHERE job = job() AND no = 2));
SELECT automation.drain() >= 0, far();

-- a pause holds the job; what was ordered and not begun is begun again, once
TRUNCATE effect;
SELECT automation.backfill('b-wait', 'SELECT n FROM generate_series(1, 3) AS n WHERE n = 1 UNION ALL SELECT 0 UNION ALL SELECT -1') > 0;
SELECT automation.route() > 0;
SELECT automation.dispatch() > 0;
SELECT far();
SELECT ok FROM automation.pause('b-wait');
SELECT automation.drain() >= 0, far();
SELECT items();
SELECT automation.drain() >= 0, far();
SELECT applied FROM automation.resume('b-wait');
SELECT automation.drain() > 0, far();
SELECT note FROM effect ORDER BY note;
SELECT count(*), count(DISTINCT run_id) FROM automation.bulk_items WHERE job = job() AND status = 'completed';
-- a job keeps the version it began with
SELECT automation.backfill('b-call', 'SELECT n FROM generate_series(2, 3) AS n', rate => 1) > 0;
SELECT automation.drain() > 0;
SELECT name, version FROM automation.define('b-call', trigger => automation.on_call(), steps => ARRAY[automation.sql($$ INSERT INTO effect (note) VALUES ('another') $$)]);
SELECT automation.advance('1 second'), automation.drain() > 0, far();
SELECT DISTINCT version FROM automation.runs WHERE id IN (SELECT run_id FROM automation.bulk_items WHERE job = job());
-- a job whose automation is dropped
SELECT automation.backfill('b-wait', 'SELECT n FROM generate_series(1, 4) AS n', rate => 2) > 0;
SELECT automation.drain() > 0, automation.advance('1 second'), automation.drain() > 0, far();
SELECT automation.drop_automation('b-wait');
SELECT automation.drain() >= 0, far();

-- the step: its rows have runs of their own, it waits for them, and what it counts is its result
SELECT name FROM automation.define('s-each', trigger => automation.on_created('orders'), steps => ARRAY[
  automation.set('{"factor": 10}'),
  automation.bulk('SELECT id, total FROM orders WHERE id <= {{ new.id }} ORDER BY id', ARRAY[
    automation.sql($$ INSERT INTO effect (note) VALUES ({{ item.id }} || ' of ' || {{ new.id }} || ' ' || {{ vars.factor * item.total }} || ' ' || {{ trigger.id }}) $$, id => 'note')], id => 'each'),
  automation.sql('SELECT {{ steps.each.total }}::int AS total', id => 'after')]);
TRUNCATE effect;
BEGIN;
INSERT INTO orders VALUES (6, 'new', 60);
SELECT automation.drain() > 0;
SELECT regexp_replace(told, '"job": \d+, ', '') FROM (SELECT told(id) FROM automation.runs WHERE automation = 's-each' AND parent IS NULL) AS x;
SELECT note FROM effect ORDER BY seq;
SELECT far(), (SELECT run_id = (SELECT id FROM automation.runs WHERE automation = 's-each' AND parent IS NULL) FROM automation.progress WHERE job = job()) AS of_the_run;
SELECT count(*), count(DISTINCT parent), count(DISTINCT event_id) FROM automation.runs WHERE automation = 's-each' AND parent IS NOT NULL;
SELECT entered, completed FROM automation.stat_automations WHERE automation = 's-each';
ROLLBACK;
-- rows that fail fail the step, unless it goes on; there is no on_failure for a row
SELECT name FROM automation.define('s-fail', trigger => automation.on_call(), steps => ARRAY[
  automation.bulk('SELECT n FROM generate_series(0, 2) AS n', ARRAY[automation.sql('SELECT 1 / {{ item.n }}::int')], id => 'each', continue_on_error => true),
  automation.sql('SELECT {{ steps.each.failed }}::int AS failed, {{ steps.each.done }}::int AS done', id => 'after'),
  automation.bulk('SELECT n FROM generate_series(0, 2) AS n', ARRAY[automation.sql('SELECT 1 / {{ item.n }}::int')], id => 'again')],
  on_failure => ARRAY[automation.sql($$ INSERT INTO effect (note) VALUES ({{ error.message }}) $$)]);
TRUNCATE effect;
SELECT automation.start_run('s-fail') AS a \gset
SELECT automation.drain() > 0;
SELECT regexp_replace(told, '"job": \d+, ', '') FROM told(:a);
SELECT note FROM effect;
-- a query that fails when it runs; one that finds nothing
SELECT name FROM automation.define('s-query', trigger => automation.on_call(), steps => ARRAY[
  automation.bulk('SELECT 1 / (n - 3) AS n FROM generate_series(1, {{ payload.n }}::int) AS n', ARRAY[automation.sql('SELECT 1')], id => 'each')]);
SELECT automation.start_run('s-query', '{"n": 5}') AS a, automation.start_run('s-query', '{"n": 0}') AS b \gset
SELECT automation.drain() > 0;
SELECT regexp_replace(told, 'bulk job \d+', 'bulk job N') FROM told(:a);
SELECT regexp_replace(told, '"job": \d+, ', '') FROM told(:b);
SELECT count(*) FROM automation.bulk_items AS i JOIN automation.progress AS p ON p.job = i.job WHERE p.run_id = :a;
-- rows that wait, steps in steps, a bulk in a bulk; the run that is cancelled takes them along
SELECT name FROM automation.define('s-wait', trigger => automation.on_call(), steps => ARRAY[
  automation.bulk('SELECT n FROM generate_series(1, 2) AS n', ARRAY[
    automation.bulk('SELECT {{ item.n }}::int * 10 + m AS m FROM generate_series(1, 2) AS m', ARRAY[
      automation.delay('1 minute', condition => 'item.m = 22'), automation.sql('INSERT INTO effect (note) VALUES ({{ item.m }})')])], id => 'each')]);
TRUNCATE effect;
SELECT automation.start_run('s-wait') AS a \gset
SELECT automation.drain() > 0;
SELECT regexp_replace(told, 'bulk job \d+', 'bulk job N') FROM told(:a);
SELECT string_agg(note, ' ' ORDER BY note) FROM effect;
SELECT state, total, done, active FROM automation.progress ORDER BY job DESC LIMIT 3;
SELECT automation.advance('1 minute'), automation.drain() > 0;
SELECT status FROM automation.runs WHERE id = :a;
SELECT string_agg(note, ' ' ORDER BY note) FROM effect;
SELECT automation.start_run('s-wait') AS a \gset
SELECT automation.drain() > 0, automation.cancel_run(:a);
SELECT automation.drain() >= 0;
SELECT state, total, done, cancelled, active FROM automation.progress ORDER BY job DESC LIMIT 3;
SELECT status, count(*) FROM automation.runs WHERE automation = 's-wait' AND id >= :a GROUP BY status ORDER BY status;
-- it takes too long; a person skips it
SELECT name FROM automation.define('s-late', trigger => automation.on_call(), steps => ARRAY[
  automation.bulk('SELECT 1 AS n', ARRAY[automation.delay('1 day')], id => 'each', timeout => '1 hour')]);
SELECT automation.start_run('s-late') AS a, automation.start_run('s-late') AS b \gset
SELECT automation.drain() > 0, automation.skip_step(:b) = :b, automation.drain() > 0, automation.advance('1 hour'), automation.drain() > 0;
SELECT told(:a);
SELECT told(:b);
SELECT state, cancelled FROM automation.progress ORDER BY job DESC LIMIT 2;
-- while it is paused, the rows wait; with on_pause finish they go on
SELECT name FROM automation.define('s-finish', trigger => automation.on_call(), on_pause => 'finish', steps => ARRAY[automation.bulk('SELECT 1 AS n', ARRAY[automation.sql($$ INSERT INTO effect (note) VALUES ('finished') $$)], id => 'each')]);
SELECT name FROM automation.define('s-freeze', trigger => automation.on_call(), on_pause => 'freeze', steps => ARRAY[automation.bulk('SELECT 1 AS n', ARRAY[automation.sql($$ INSERT INTO effect (note) VALUES ('thawed') $$)], id => 'each')]);
TRUNCATE effect;
SELECT automation.start_run('s-finish') AS a, automation.start_run('s-freeze') AS b \gset
SELECT automation.route() > 0;
SELECT automation.dispatch() > 0;
SELECT automation.route() > 0;
SELECT automation.dispatch() > 0;
SELECT ok FROM automation.pause('s-finish') UNION ALL SELECT ok FROM automation.pause('s-freeze');
SELECT automation.drain() > 0;
SELECT automation, status, waiting_for IS NOT NULL FROM automation.runs WHERE id IN (:a, :b) ORDER BY id;
SELECT note FROM effect;
SELECT ok FROM automation.resume('s-freeze');
SELECT automation.drain() > 0;
SELECT automation, status FROM automation.runs WHERE id IN (:a, :b) ORDER BY id;
SELECT note FROM effect ORDER BY seq;

-- a row that is too large fails alone, and so does one whose filter cannot be worked out
SELECT name FROM automation.define('b-odd', trigger => automation.on_event('odd', filter => 'payload.n / payload.d > 0'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.backfill('b-odd', $$ SELECT n, 1 - n AS d, CASE WHEN n = 2 THEN repeat('x', 70000) END AS x FROM generate_series(0, 2) AS n $$) > 0;
SELECT automation.drain() >= 0, far();
SELECT items();

-- what is no query
SELECT automation.backfill('b-call', 'SELEC 1');
SELECT automation.backfill('b-call', 'SELECT n FROM missing');
SELECT tried($$SELECT automation.backfill('b-call', '')$$);
SELECT tried($$SELECT automation.backfill('b-call', 'SELECT 1 AS a; SELECT 2 AS a')$$);
SELECT tried($$SELECT automation.backfill('b-call', 'DELETE FROM orders')$$);
SELECT tried($$SELECT automation.backfill('b-call', 'DELETE FROM orders RETURNING id')$$);
SELECT tried($$SELECT automation.backfill('b-call', 'WITH gone AS (DELETE FROM orders RETURNING id) SELECT * FROM gone')$$);
SELECT tried($$SELECT automation.backfill('b-call', 'SELECT id FROM orders FOR UPDATE')$$);
SELECT tried($$SELECT automation.backfill('b-call', 'SELECT 1 AS n INTO other')$$);
SELECT tried($$SELECT automation.backfill('b-call', 'SHOW search_path')$$);
SELECT tried($$SELECT automation.backfill('b-call', 'COPY orders TO STDOUT')$$);
SELECT tried($$SELECT automation.backfill('b-call', 'SELECT FROM orders')$$);
SELECT tried($$SELECT automation.backfill('b-call', 'SELECT o.id, p.id FROM orders AS o, orders AS p')$$);
SELECT tried($$SELECT automation.backfill('b-call', 'SELECT 1, 2')$$);
SELECT tried($$SELECT automation.backfill('b-call', 'SELECT $1 AS n')$$);
-- rates, automations, kinds
SELECT tried($$SELECT automation.backfill('b-call', 'SELECT 1 AS n', rate => 0)$$);
SELECT tried($$SELECT automation.backfill('b-call', 'SELECT 1 AS n', rate => -1)$$);
SELECT tried($$SELECT automation.backfill('b-call', 'SELECT 1 AS n', rate => 'NaN')$$);
SELECT tried($$SELECT automation.backfill('b-none', 'SELECT 1 AS n')$$);
SELECT tried($$SELECT automation.backfill(NULL, 'SELECT 1 AS n')$$);
SELECT tried($$SELECT automation.backfill('b-call', NULL)$$);
SELECT name FROM automation.define('b-draft', trigger => automation.on_call(), status => 'draft', steps => ARRAY[automation.sql('SELECT 1')]);
SELECT tried($$SELECT automation.backfill('b-draft', 'SELECT 1 AS n')$$);
SELECT tried($$SELECT automation.backfill('b-new', 'SELECT 1 AS n', kind => 'orders')$$);
SELECT tried($$SELECT automation.backfill('b-new', 'SELECT 1 AS id', kind => 'nothing')$$);
SELECT tried($$SELECT automation.backfill('b-call', 'SELECT 1 AS id', kind => 'orders')$$);
-- the same for the step
SELECT automation.define('s-bad', trigger => automation.on_call(), steps => ARRAY[automation.bulk('SELECT id FROM orders WHERE nme = {{ payload.n }}', ARRAY[automation.sql('SELECT 1')])]);
SELECT automation.define('s-bad', trigger => automation.on_call(), steps => ARRAY[automation.bulk('SELECT id FROM orders', ARRAY[automation.sql('SELECT 1')]), automation.sql('SELECT {{ item.id }}')]);
SELECT path, sqlstate, message FROM automation.validate('{"name": "s-bad", "triggers": [{"on": "call"}], "steps": [{"do": "bulk", "query": "DELETE FROM orders", "rate": -1, "steps": [{"do": "sql", "sql": "SELECT {{ item.id }}"}]}, {"do": "bulk", "query": "SELECT 1, 2", "steps": [{"do": "sql", "sql": "SELECT {{ item.x }}"}]}, {"do": "bulk", "query": "SELECT 1 AS a", "steps": []}]}');

-- the query has the rights of the owner and no others, and writes nothing by the back door
CREATE ROLE bulk_owner LOGIN;
CREATE ROLE bulk_other LOGIN;
GRANT USAGE ON SCHEMA bulk TO bulk_owner, bulk_other;
SELECT automation.grant_usage('bulk_owner', 'author'), automation.grant_usage('bulk_other', 'author');
CREATE TABLE secret (n int);
CREATE FUNCTION writes() RETURNS int LANGUAGE sql AS 'INSERT INTO bulk.effect (note) VALUES (''written''); SELECT 1';
CREATE FUNCTION late() RETURNS int LANGUAGE plpgsql AS 'BEGIN EXECUTE ''CREATE TABLE bulk.late ()''; RETURN 1; END';
GRANT INSERT ON effect TO bulk_owner;
SET ROLE bulk_owner;
SELECT name FROM automation.define('r-own', trigger => automation.on_call(), steps => ARRAY[automation.sql('INSERT INTO bulk.effect (note) VALUES ({{ payload.me }} || '' '' || current_user)')]);
SELECT tried($$SELECT automation.backfill('r-own', 'SELECT * FROM secret')$$);
SELECT automation.backfill('r-own', 'SELECT writes() AS me') > 0;
RESET ROLE;
TRUNCATE effect;
SELECT automation.drain() >= 0, far();
SELECT automation.backfill('r-own', 'SELECT late() AS me') > 0;
SELECT automation.drain() >= 0, far();
-- a superuser orders it, and it runs as the owner all the same
SELECT tried($$SELECT automation.backfill('r-own', 'SELECT * FROM secret')$$);
SELECT automation.backfill('r-own', 'SELECT current_user AS me') > 0;
SELECT automation.drain() > 0, far();
SELECT note FROM effect;
-- others see and move nothing of it
SELECT job() AS theirs \gset
SET ROLE bulk_other;
SELECT count(*) FROM automation.progress;
SELECT count(*) FROM automation.bulk_items;
SELECT tried($$SELECT automation.backfill('r-own', 'SELECT 1 AS me')$$);
SELECT reason FROM automation.approve_bulk(:theirs) UNION ALL SELECT reason FROM automation.cancel_bulk(:theirs);
RESET ROLE;

-- nothing is left behind, and every job has told of its end once
SELECT count(*) FROM automation_internal.bulk_tally;
SELECT p.state, count(*) = count(DISTINCT p.job) AS once FROM automation.progress AS p LEFT JOIN automation.events AS e ON e.topic = 'automation.bulk.finished' AND (e.payload ->> 'job')::bigint = p.job GROUP BY p.state HAVING count(*) <> count(e.id) ORDER BY p.state;
SELECT count(*) FROM automation_internal.timer AS t JOIN automation_internal.bulk_job AS j ON j.id = t.run_id;
\i :check
SELECT automation.drop_automation(name) FROM automation.automations WHERE name ~ '^(b|s|r)-';
SELECT automation.set_clock(NULL);
SELECT automation.unwatch_table('orders'), automation.unwatch_table('sensor');
SELECT automation.revoke_usage('bulk_owner'), automation.revoke_usage('bulk_other');
\set VERBOSITY terse
SET client_min_messages = warning;
DROP SCHEMA bulk CASCADE;
DROP ROLE bulk_owner, bulk_other;
