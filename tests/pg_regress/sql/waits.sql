-- Durable waits: delays, conditions, events, signals; what wakes a run and what does not. Time is set by hand.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv dir PG_ABS_SRCDIR
\set show :dir '/check/show.sql'
\set check :dir '/check/waits.sql'
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
CREATE SCHEMA waits;
SET search_path = waits, public;
\i :show
CREATE TABLE item (id int PRIMARY KEY, status text, n int);
CREATE TABLE effect (n serial, what text);
SELECT automation.watch_table('item', kind => 'w_item');
SELECT automation.set_clock('2030-01-01 12:00+00');

-- delay: an interval, a point in time, {duration, unit} (R003-32), a computed one; never early, once
SELECT name FROM automation.define('w-delay', trigger => automation.on_call(), steps => ARRAY[automation.delay('2 hours', id => 'd')]);
SELECT name FROM automation.define('w-until', trigger => automation.on_call(), steps => ARRAY[automation.delay(until => '2030-01-01 14:00+00', id => 'd')]);
SELECT name FROM automation.define('{"name": "w-unit", "trigger": {"on": "call"}, "steps": [{"id": "d", "do": "delay", "for": {"duration": 2, "unit": "hours"}}]}');
SELECT name FROM automation.define('w-computed', trigger => automation.on_call(), steps => ARRAY[automation.delay(until => $$ payload.at $$, id => 'd')]);
SELECT name FROM automation.define('{"name": "w-text", "trigger": {"on": "call"}, "steps": [{"id": "d", "do": "delay", "for": "{{ payload.hours }} hours"}]}');
SELECT automation.start_run('w-delay') AS a, automation.start_run('w-until') AS b, automation.start_run('w-unit') AS c,
       automation.start_run('w-computed', '{"at": "2030-01-01T14:00:00Z"}') AS d, automation.start_run('w-text', '{"hours": 2}') AS e \gset
SELECT automation.drain();
SELECT automation, step, waiting_for, since, deadline, refs, kind FROM automation.waiting WHERE automation LIKE 'w-%' ORDER BY run_id;
SELECT automation, due_at, due_in, reason FROM automation.timers WHERE automation LIKE 'w-%' ORDER BY run_id;
SELECT automation, status, waiting_for, started_at, took FROM automation.runs WHERE id IN (:a, :b) ORDER BY id;
SELECT automation.advance('1 hour 59 minutes 59.999999 seconds');
SELECT automation.drain();
SELECT count(*) FROM automation.waiting WHERE automation LIKE 'w-%';
SELECT automation.advance('1 microsecond');
SELECT automation.drain();
SELECT told(:a);
SELECT r.automation, r.status, r.took, s.took FROM automation.runs AS r JOIN automation.run_steps AS s ON s.run_id = r.id
 WHERE r.id IN (:a, :b, :c, :d, :e) ORDER BY r.id;
-- in the past: no wait at all; a month is a month
SELECT automation.start_run('w-until') AS b \gset
SELECT automation.drain();
SELECT told(:b);
SELECT name FROM automation.define('w-month', trigger => automation.on_call(), steps => ARRAY[automation.delay('1 month', id => 'd')]);
SELECT automation.start_run('w-month') AS m \gset
SELECT automation.drain();
SELECT deadline FROM automation.waiting WHERE run_id = :m;
SELECT automation.cancel_run(:m);
-- what is no duration, or no time, when it comes to it, fails that run alone
SELECT automation.start_run('w-text', '{"hours": -2}') AS a, automation.start_run('w-text', '{"hours": "many"}') AS b,
       automation.start_run('w-text', '{"hours": 1700000000000}') AS c, automation.start_run('w-computed', '{"at": "soon"}') AS d,
       automation.start_run('w-computed', '{"at": "infinity"}') AS e, automation.start_run('w-computed') AS f \gset
SELECT automation.drain();
SELECT told(r) FROM unnest(ARRAY[:a, :b, :c, :d, :e, :f]) AS r;

-- wait_until: R000-12, R000-16: any ref wakes, the full condition decides
INSERT INTO item VALUES (1, 'new', 0), (2, 'new', 0), (11, 'new', 0);
SELECT name FROM automation.define('w-both', trigger => automation.on_call(), steps => ARRAY[
    automation.wait_until($$ state.w_item['1'].status = 'ok' and state.w_item['2'].status = 'ok' $$, timeout => '1 hour', id => 'w'),
    automation.sql($$ INSERT INTO effect (what) VALUES (concat_ws(' ', 'both', {{ wait.completed }}, {{ wait.timed_out }}, {{ wait.remaining }}, {{ steps.w.remaining }})) $$)]);
SELECT automation.start_run('w-both') AS a \gset
SELECT automation.drain();
SELECT waiting_for, refs, deadline FROM automation.waiting WHERE run_id = :a;
UPDATE item SET status = 'ok' WHERE id = 1;
SELECT automation.drain();
SELECT told(:a);
-- R000-2: no difference, no wake; R000-7: one wake per wait however many changes; look-alike ids do not count
UPDATE item SET status = status;
UPDATE item SET n = n + 1 WHERE id = 11;
SELECT automation.route() > 0 AS routed;
SELECT count(*) FROM automation.dispatches;
UPDATE item SET n = n + 1 WHERE id IN (1, 2);
UPDATE item SET n = n + 1 WHERE id IN (1, 2);
SELECT automation.route() > 0 AS routed;
SELECT run_id = :a AS ours, reason FROM automation.dispatches;
SELECT automation.drain();
SELECT automation.advance('15 minutes');
UPDATE item SET status = 'ok' WHERE id = 2;
SELECT automation.drain();
SELECT told(:a);
-- R000-24: already so: no lock, no timer, the walk goes on
SELECT automation.start_run('w-both') AS a \gset
SELECT automation.drain();
SELECT told(:a);
SELECT what FROM effect ORDER BY n;
SELECT count(*) FROM automation_internal.timer;
-- R000-27: the timeout: goes on by default, fails if its author says so; satisfied beats timed out
UPDATE item SET status = 'new';
SELECT name FROM automation.define('w-fail', trigger => automation.on_call(), steps => ARRAY[
    automation.wait_until($$ state.w_item['1'].status = 'ok' $$, timeout => '1 hour', continue_on_timeout => false, id => 'w')]);
SELECT automation.start_run('w-both') AS a, automation.start_run('w-fail') AS b, automation.start_run('w-fail') AS c \gset
SELECT automation.drain();
SELECT automation.advance('1 hour');
SELECT automation.drain();
SELECT told(r) FROM unnest(ARRAY[:a, :b, :c]) AS r;
SELECT automation.start_run('w-fail') AS b \gset
SELECT automation.drain();
SELECT automation.advance('1 hour');
UPDATE item SET status = 'ok' WHERE id = 1;
SELECT automation.run_timers();
SELECT automation.drain();
SELECT told(:b);
UPDATE item SET status = 'new';
-- deleted, and there again
SELECT automation.start_run('w-fail') AS b \gset
SELECT automation.drain();
DELETE FROM item WHERE id = 1;
SELECT automation.drain();
SELECT told(:b);
INSERT INTO item VALUES (1, 'ok', 0);
SELECT automation.drain();
SELECT told(:b);

-- R000-22: the id is computed from what is there already, or is any of the kind
SELECT name FROM automation.define('w-own', trigger => automation.on_created('w_item'), key => 'new.id', steps => ARRAY[
    automation.wait_until($$ state.w_item[new.id].status = 'go' $$, id => 'w'), automation.sql($$ INSERT INTO effect (what) VALUES ('own ' || {{ new.id }}) $$)]);
SELECT name FROM automation.define('w-any', trigger => automation.on_call(), steps => ARRAY[
    automation.wait_until($$ state.w_item[state.w_item['2'].n].status = 'there' $$, id => 'w')]);
INSERT INTO item VALUES (3, 'new', 0), (4, 'new', 0);
SELECT automation.start_run('w-any') AS a \gset
SELECT automation.drain();
SELECT automation, key, entity, refs FROM automation.waiting WHERE automation IN ('w-own', 'w-any') ORDER BY run_id;
UPDATE item SET status = 'go' WHERE id = 4;
SELECT automation.route() > 0 AS routed;
SELECT automation FROM automation.dispatches ORDER BY id;
SELECT automation.drain();
SELECT key, status FROM automation.runs WHERE automation = 'w-own' ORDER BY id;
UPDATE item SET n = 4, status = 'x' WHERE id = 2;
UPDATE item SET status = 'there' WHERE id = 4;
SELECT automation.drain();
SELECT told(:a);
SELECT automation.cancel_run(filter => $$ run.automation = 'w-own' and run.key = '3' $$);
SELECT automation.drop_automation('w-own');
-- ids and kinds that look like something else
SELECT automation.set_state('w_k', '*', '{"v": 0}') > 0, automation.set_state('w_k', '1', '{"v": 0}') > 0, automation.set_state('w_k:1', '2', '{"v": 0}') > 0, automation.set_state('w_k', '1:2', '{"v": 0}') > 0;
SELECT name FROM automation.define('w-star', trigger => automation.on_call(), steps => ARRAY[automation.wait_until($$ state.w_k[payload.id].v = 1 $$, id => 'w')]);
SELECT name FROM automation.define('w-colon', trigger => automation.on_call(), steps => ARRAY[automation.wait_until($$ state['w_k:1']['2'].v = 1 $$, id => 'w')]);
SELECT automation.start_run('w-star', '{"id": "*"}') AS a, automation.start_run('w-colon') AS b \gset
SELECT automation.drain();
SELECT automation.set_state('w_k', '1', '{"v": 1}') > 0, automation.set_state('w_k', '1:2', '{"v": 1}') > 0;
SELECT automation.route() > 0 AS routed;
SELECT automation FROM automation.dispatches;
SELECT automation.set_state('w_k', '*', '{"v": 1}') > 0, automation.set_state('w_k:1', '2', '{"v": 1}') > 0;
SELECT automation.drain();
SELECT told(:a);
SELECT told(:b);
-- an id that no index could hold: the whole kind is watched instead
SELECT string_agg(md5(i::text), '') AS long FROM generate_series(1, 1000) AS i \gset
SELECT automation.start_run('w-star', jsonb_build_object('id', :'long')) AS a \gset
SELECT automation.drain();
SELECT status FROM automation.runs WHERE id = :a;
SELECT kind, entity_id FROM automation_internal.wake_index WHERE run_id = :a;
SELECT automation.cancel_run(:a);
-- R000-23: nothing to be extracted: only the timeout, and the log says so
SELECT name FROM automation.define('w-blind', trigger => automation.on_call(), steps => ARRAY[automation.wait_until($$ vars.never = 1 $$, timeout => '1 hour', id => 'w')]);
SELECT automation.start_run('w-blind') AS a \gset
SELECT automation.drain();
SELECT level, code, automation, message, detail FROM automation.log WHERE run_id = :a;
SELECT automation.advance('1 hour');
SELECT automation.drain();
SELECT told(:a);
-- time alone may make it true: one timer, at that time
SELECT name FROM automation.define('w-clock', trigger => automation.on_call(), steps => ARRAY[automation.wait_until($$ now() >= '2030-02-01 00:00+00' $$, id => 'w')]);
SELECT automation.start_run('w-clock') AS a \gset
SELECT automation.drain();
SELECT due_at, reason FROM automation.timers WHERE run_id = :a AND reason <> 'arm';
SELECT automation.set_clock('2030-01-31 23:59:59+00');
SELECT automation.drain();
SELECT told(:a);
SELECT automation.advance('1 second');
SELECT automation.drain();
SELECT told(:a);
\i :check

-- R000-18 to R000-21: structured conditions; what is waited for is told in words; every kind is read anew (R000-26)
SELECT automation.set_state('w_health', 'db', '{"status": "down"}') > 0, automation.set_state('w_sensor', 't1', '{"value": 10}') > 0;
SELECT name FROM automation.define('{"name": "w-struct", "trigger": {"on": "call"}, "steps": [{"id": "w", "do": "wait_until", "until": {"and": [
    {"state": {"kind": "w_health", "id": "db", "field": "status", "is": "up"}}, {"or": [{"numeric_state": {"value": "state.w_sensor.t1.value", "above": 20}}, {"not": {"state": {"kind": "w_health", "id": "{{ payload.other }}", "is": "up"}}}]}]}}]}');
SELECT automation.start_run('w-struct', '{"other": "web"}') AS a \gset
SELECT automation.drain();
SELECT waiting_for, refs FROM automation.waiting WHERE run_id = :a;
SELECT automation.set_state('w_health', 'web', '{"status": "up"}') > 0;
SELECT automation.drain();
SELECT automation.set_state('w_health', 'db', '{"status": "up"}') > 0;
SELECT automation.drain();
SELECT status FROM automation.runs WHERE id = :a;
SELECT automation.set_state('w_sensor', 't1', '{"value": 21}') > 0;
SELECT automation.drain();
SELECT told(:a);
-- held for a while: a change of another field does not begin it anew; of a table's row likewise
SELECT name FROM automation.define('{"name": "w-for", "trigger": {"on": "call"}, "steps": [{"id": "w", "do": "wait_until", "until": {"state": {"kind": "w_health", "id": "db", "is": "up", "for": "5 minutes"}}}]}');
SELECT name FROM automation.define('{"name": "w-for-row", "trigger": {"on": "call"}, "steps": [{"id": "w", "do": "wait_until", "timeout": "1 hour", "until": {"state": {"kind": "w_item", "id": "11", "field": "status", "is": "new", "for": "5 minutes"}}}]}');
SELECT automation.start_run('w-for') AS a, automation.start_run('w-for-row') AS b \gset
SELECT automation.drain();
SELECT due_at, reason FROM automation.timers WHERE run_id IN (:a, :b) AND reason = 'look again';
SELECT automation.advance('4 minutes');
SELECT automation.set_state('w_health', 'db', '{"status": "up", "since": "a restart"}') > 0;
SELECT automation.drain();
SELECT automation.advance('59 seconds'), automation.drain();
SELECT status FROM automation.runs WHERE id IN (:a, :b);
SELECT automation.advance('2 seconds'), automation.drain();
SELECT told(:a), told(:b);
\i :check

-- wait_for_event: what comes after the wait was armed, on the topic, through the filter, and not what came before
SELECT name FROM automation.define('w-event', trigger => automation.on_call(), steps => ARRAY[
    automation.wait_for_event('w.pay.*', filter => $$ event.payload.n = trigger.payload.n $$, timeout => '1 day', id => 'w'),
    automation.sql($$ INSERT INTO effect (what) VALUES (concat_ws(' ', {{ wait.event.topic }}, {{ steps.w.event.payload.n }}, {{ payload.n }}, {{ wait.remaining }})) $$)]);
SELECT automation.emit('w.pay.early', '{"n": 1}') > 0;
SELECT automation.start_run('w-event', '{"n": 1}') AS a, automation.start_run('w-event', '{"n": 2}') AS b \gset
SELECT automation.drain();
SELECT waiting_for, deadline FROM automation.waiting WHERE run_id = :a;
SELECT count(automation.emit(t, '{"n": 1}')) FROM unnest('{w.pay,w.pay.x.y,w.payx.y}'::text[]) AS t;
SELECT automation.emit('w.pay.other', '{"n": 3}') > 0;
SELECT automation.drain();
SELECT told(:a);
SELECT automation.emit('w.pay.card', '{"n": 1}') > 0;
SELECT automation.drain();
SELECT told(:a);
SELECT told(:b);
SELECT what FROM effect ORDER BY n DESC LIMIT 1;
SELECT automation.advance('1 day');
SELECT automation.drain();
SELECT told(:b);
-- changes of tables are events as well; a topic may be computed
SELECT name FROM automation.define('w-change', trigger => automation.on_call(), steps => ARRAY[
    automation.wait_for_event('{{ payload.kind }}.updated', filter => $$ new.status becomes 'done' $$, id => 'w')]);
SELECT automation.start_run('w-change', '{"kind": "w_item"}') AS a, automation.start_run('w-change', '{"kind": "a..b"}') AS b \gset
SELECT automation.drain();
UPDATE item SET n = 9 WHERE id = 2;
SELECT automation.drain();
SELECT told(:a);
UPDATE item SET status = 'done' WHERE id = 2;
SELECT automation.drain();
SELECT told(:a);
SELECT told(:b);
-- lookback
SELECT name FROM automation.define('w-back', trigger => automation.on_call(), steps => ARRAY[
    automation.wait_for_event('w.pay.card', lookback => '1 hour', id => 'w')]);
SELECT automation.start_run('w-back') AS a \gset
SELECT automation.drain();
SELECT told(:a);
-- an event of the transaction that started the run is before the wait, one behind it is after
BEGIN;
SELECT automation.start_run('w-event', '{"n": 5}') AS a \gset
SELECT automation.emit('w.pay.a', '{"n": 5}') > 0;
SELECT automation.drain();
SELECT told(:a);
SELECT automation.emit('w.pay.b', '{"n": 5}') > 0;
SELECT automation.drain();
SELECT told(:a);
COMMIT;
SELECT automation.drain();
SELECT told(:a);

-- two lanes woken by the same commit; a wait in a loop in an else, armed again each time
SELECT name FROM automation.define('w-lanes', trigger => automation.on_call(), steps => ARRAY[
    automation.parallel(ARRAY[automation.wait_until($$ state.w_item['1'].n = 7 $$, id => 'a'), automation.wait_until($$ state.w_item['1'].n > 6 $$, id => 'b'),
                              automation.wait_signal('w-never', timeout => '1 minute', id => 'c')], id => 'all'),
    automation.sql('SELECT 1 AS once', id => 'after')]);
SELECT automation.start_run('w-lanes') AS a \gset
SELECT automation.drain();
SELECT step, waiting_for, deadline FROM automation.waiting WHERE run_id = :a;
UPDATE item SET n = 7 WHERE id = 1;
SELECT automation.drain();
SELECT told(:a);
SELECT automation.advance('1 minute');
SELECT automation.drain();
SELECT told(:a);
SELECT name FROM automation.define('w-loop', trigger => automation.on_call(), steps => ARRAY[
    automation.choose(ARRAY[automation.when_holds('false', ARRAY[automation.sql('SELECT 1')])], otherwise => ARRAY[
        automation.repeat_count(2, ARRAY[automation.repeat_until($$ wait.payload.stop $$, ARRAY[automation.wait_signal('w-loop', id => 'w')])])])]);
SELECT automation.start_run('w-loop') AS a \gset
SELECT automation.drain();
SELECT count(automation.signal('w-loop', jsonb_build_object('stop', i % 2 = 0, 'i', i))) FROM generate_series(1, 4) AS i;
SELECT automation.drain();
SELECT told(:a);
\i :check

-- the other spelling of R003-32 is the same document
SELECT automation.document(d.name) -> 'steps' FROM automation.define('{"name": "w-spelt", "trigger": {"on": "call"}, "steps": [{"id": "d", "do": "delay", "duration": 3, "unit": "days"}]}') AS d;

-- what changed while nobody watched is seen when the table is watched again
SELECT name FROM automation.define('w-blind', trigger => automation.on_call(), steps => ARRAY[
    automation.wait_until($$ state.w_item['1'].n = 99 $$, id => 'w')]);
SELECT automation.start_run('w-blind') AS a \gset
SELECT automation.drain();
SELECT automation.unwatch_table('item');
UPDATE item SET n = 99 WHERE id = 1;
SELECT automation.drain();
SELECT status FROM automation.runs WHERE id = :a;
SELECT automation.watch_table('item', kind => 'w_item');
SELECT automation.drain();
SELECT told(:a);
\i :check
SELECT count(*) FROM automation.stat_automations WHERE automation LIKE 'w-%' AND active <> 0;
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'w-%';
SELECT automation.drain();
\i :check
SELECT count(*) FROM automation_internal.run;
SELECT automation.set_clock(NULL);
SELECT automation.unwatch_table('item');
SET client_min_messages = warning;
DROP SCHEMA waits CASCADE;
