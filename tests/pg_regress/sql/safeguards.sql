-- Safeguards: dedup (R001-41, R001-43 to R001-46, R001-61), limits of executions (R002-10, R002-12 to R002-20), the circuit breaker
-- (R003-9), limits of concurrency (R001-40, R002-9).
\set SHOW_CONTEXT never
CREATE SCHEMA safe;
SET search_path = safe, public;
CREATE TABLE item (id int PRIMARY KEY, n int, ref text);
SELECT automation.watch_table('item', kind => 's_item');
CREATE TABLE effect (n serial, what text);
CREATE VIEW state AS SELECT name, status, disabled_by, disable_details - 'disabled_at' - 'last_run' AS disable_details
  FROM automation.automations WHERE name LIKE 's\_%' ORDER BY name;
CREATE VIEW shown AS SELECT automation, r.status, ended_reason, count(*) FROM automation.runs AS r
  JOIN automation.automations AS a ON a.name = automation WHERE automation LIKE 's\_%' GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;

-- dedup: equal events within the time start one run; what has no key is never equal to anything (R001-41, R001-43)
SELECT status FROM automation.define('s_dedup', dedup => automation.dedup('new.ref', '10 minutes'), condition => 'new.n > 0',
    trigger => automation.on_changed('s_item'),
    steps => ARRAY[automation.sql($$ INSERT INTO effect (what) VALUES ('dedup ' || {{ new.id }}) $$)]);
BEGIN;
SELECT automation.set_clock('2030-01-01 00:00+00') IS NULL AS set;
INSERT INTO item VALUES (1, 0, 'x'), (2, 1, 'x'), (3, 1, 'x'), (4, 1, 'y'), (5, 1, NULL), (6, 1, NULL);
SELECT automation.drain() > 0 AS worked;
SELECT what FROM effect ORDER BY n;
SELECT automation, status, ended_reason, entity FROM automation.runs WHERE automation = 's_dedup' AND status = 'skipped' ORDER BY id;
SELECT automation.advance('9 minutes 59 seconds') IS NULL AS advanced;
INSERT INTO item VALUES (7, 1, 'x');
SELECT automation.drain() > 0 AS worked;
SELECT automation.advance('1 second') IS NULL AS advanced;
INSERT INTO item VALUES (8, 1, 'x'), (9, 1, 'x');
SELECT automation.drain() > 0 AS worked;
SELECT what FROM effect ORDER BY n DESC LIMIT 1;
-- each duplicate is counted, and is no warning in the log (R001-45)
SELECT trigger, reason, count FROM automation.stat_gates WHERE automation = 's_dedup' ORDER BY 1, 2;
SELECT count(*) AS warnings FROM automation.log WHERE automation = 's_dedup';
-- a claim lasts as long as the automation says
SELECT count(*), bool_and(expires_at = timestamptz '2030-01-01 00:20+00') AS for_ten_minutes FROM automation_internal.execution_claim WHERE key = 'key x';
-- starts by hand are never duplicates (R001-51)
SELECT automation.start_run('s_dedup', '{"n": 1, "ref": "x"}') > 0 AS started;
ROLLBACK;
-- a claim is forgotten once it has expired, by the clock on the wall, and not before (R001-46)
BEGIN;
SELECT automation.set_clock('2020-01-01 00:00+00') IS NULL AS set;
INSERT INTO item VALUES (1, 1, 'old');
SELECT automation.drain() > 0 AS worked;
SELECT automation.set_clock(NULL) IS NULL AS unset;
INSERT INTO item VALUES (2, 1, 'young');
SELECT automation.drain() > 0 AS worked;
SELECT key, expires_at > now() AS lasts FROM automation_internal.execution_claim ORDER BY 1;
SELECT automation.sweep() IS NOT NULL AS swept;
SELECT key, expires_at > now() AS lasts FROM automation_internal.execution_claim ORDER BY 1;
ROLLBACK;
SELECT automation.drop_automation('s_dedup');

-- max_executions: one too many pauses the automation; the execution is hot and does nothing (R002-10, R002-12 to R002-18)
SELECT status FROM automation.define('s_often', max_executions => '3 per 1 minute', trigger => automation.on_created('s_item'),
    steps => ARRAY[automation.sql($$ INSERT INTO effect (what) VALUES ('often ' || {{ new.id }}) $$)]);
BEGIN;
SELECT automation.set_clock('2030-01-01 00:00+00') IS NULL AS set;
INSERT INTO item VALUES (11), (12), (13);
SELECT automation.drain() > 0 AS worked;
SELECT automation.advance('1 minute 1 microsecond') IS NULL AS advanced;
INSERT INTO item VALUES (14), (15), (16);
SELECT automation.drain() > 0 AS worked;
SELECT * FROM shown;
INSERT INTO item VALUES (17), (18), (19);
SELECT automation.drain() > 0 AS worked;
SELECT * FROM shown;
SELECT * FROM state;
-- not counted as a run (R002-18)
SELECT entered, completed, skipped, cancelled, active FROM automation.stat_automations WHERE automation = 's_often';
SELECT level, code, automation, message, detail FROM automation.log WHERE automation = 's_often';
SELECT role, action, details - 'disabled_at' AS details FROM automation.audit_log WHERE automation = 's_often' ORDER BY action;
SELECT topic, payload FROM automation.events WHERE topic = 'automation.paused' AND payload ->> 'automation' = 's_often';
-- only a person makes it active again, and then it is counted anew: it has all its executions though the minute is not over (R002-20)
INSERT INTO item VALUES (20);
SELECT automation.drain() > 0 AS worked;
SELECT ok, applied FROM automation.resume('s_often');
SELECT * FROM state;
INSERT INTO item VALUES (21), (22), (23);
SELECT automation.drain() > 0 AS worked;
SELECT * FROM shown;
SELECT * FROM state;
INSERT INTO item VALUES (24);
SELECT automation.drain() > 0 AS worked;
SELECT * FROM state;
SELECT ok, applied FROM automation.activate('s_often');
INSERT INTO item VALUES (25);
SELECT automation.drain() > 0 AS worked;
SELECT what FROM effect ORDER BY n DESC LIMIT 1;
SELECT * FROM state;
ROLLBACK;
SELECT automation.drop_automation('s_often');

-- without a limit of its own an automation may be executed as often as it likes ...
SELECT status FROM automation.define('s_busy', trigger => automation.on_created('s_item'),
    steps => ARRAY[automation.sql($$ INSERT INTO effect (what) VALUES ('busy') $$)]);
INSERT INTO item SELECT g FROM generate_series(1000, 1299) AS g;
SELECT automation.drain() > 0 AS worked;
SELECT * FROM shown;
SELECT automation.drop_automation('s_busy');
-- ... unless it feeds itself: twenty executions in five minutes that go back to itself (R002-12, R002-13)
SELECT status FROM automation.define('s_tame', trigger => automation.on_updated('s_item', filter => 'new.n < 9'),
    steps => ARRAY[automation.sql($$ UPDATE item SET n = n + 1 WHERE id = {{ new.id }} $$)]);
UPDATE item SET n = 1 WHERE id BETWEEN 1290 AND 1299;
SELECT automation.drain() > 0 AS worked;
SELECT * FROM state;
SELECT automation.drop_automation('s_tame');
-- ... or feeds itself until the chain of causes is cut off: the next change does not do as many runs again
SELECT status FROM automation.define('s_self', trigger => automation.on_updated('s_item'),
    steps => ARRAY[automation.sql($$ UPDATE item SET n = coalesce(n, 0) + 1 WHERE id = {{ new.id }} $$)]);
SELECT status FROM automation.define('s_listener', trigger => automation.on_updated('s_item'), steps => ARRAY[automation.set('{"heard": true}')]);
UPDATE item SET n = 1 WHERE id = 1000;
SELECT automation.drain() > 0 AS worked;
SELECT n FROM item WHERE id = 1000;
SELECT * FROM state;
SELECT automation, status, ended_reason, trigger, count(*) FROM automation.runs WHERE automation IN ('s_self', 's_listener') GROUP BY 1, 2, 3, 4 ORDER BY 1, 2;
SELECT code, automation, regexp_replace(message, 'event \d+', 'event N') AS message, detail FROM automation.log WHERE code IN ('chain_too_deep', 'hot_flow') AND at >= (SELECT min(started_at) FROM automation.runs WHERE automation = 's_self') ORDER BY code;
SELECT role, action, details - 'disabled_at' AS details FROM automation.audit_log WHERE automation = 's_self' AND action = 'automation.paused';
UPDATE item SET n = 1 WHERE id = 1001;
SELECT automation.drain() > 0 AS worked;
SELECT n FROM item WHERE id = 1001;
SELECT * FROM shown;
SELECT automation.drop_automation('s_self');
SELECT automation.drop_automation('s_listener');
-- the end of a straight chain, which goes back to no run of its own, is refused and not paused
SELECT count(*) FROM generate_series(1, 18) AS g, automation.define('s_link_' || g, trigger => automation.on_event('safe.link' || g), steps => ARRAY[automation.publish('safe.link' || g + 1)]);
SELECT automation.emit('safe.link1') > 0 AS emitted;
SELECT automation.drain() > 0 AS worked;
SELECT status, count(*) FROM automation.automations WHERE name LIKE 's_link_%' GROUP BY 1;
SELECT count(*) FROM automation.runs WHERE automation LIKE 's_link_%';
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 's_link_%';
-- one that starts itself by hand, and one that calls itself by a step, which fails
SELECT status FROM automation.define('s_hand', trigger => automation.on_call(), steps => ARRAY[automation.sql($$ SELECT automation.start_run('s_hand') $$)]);
SELECT status FROM automation.define('s_calls', breaker => 0, trigger => automation.on_call(), steps => ARRAY[automation.run('s_calls')]);
SELECT automation.start_run('s_hand') > 0 AS started, automation.start_run('s_calls') > 0 AS started;
SELECT automation.drain() > 0 AS worked;
SELECT * FROM state;
SELECT automation, status, ended_reason, count(*) FROM automation.runs WHERE automation IN ('s_hand', 's_calls') GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;
SELECT automation.drop_automation('s_hand'), automation.drop_automation('s_calls');
-- a pair that plays ping-pong (R001-55)
SELECT status FROM automation.define('s_ping', trigger => automation.on_event('safe.ping'), steps => ARRAY[automation.publish('safe.pong')]);
SELECT status FROM automation.define('s_pong', trigger => automation.on_event('safe.pong'), steps => ARRAY[automation.publish('safe.ping')]);
SELECT automation.emit('safe.ping') > 0 AS emitted, automation.emit('safe.ping') > 0 AS emitted, automation.emit('safe.ping') > 0 AS emitted;
SELECT automation.drain() > 0 AS worked;
SELECT * FROM state;
SELECT automation, status, count(*) FROM automation.runs WHERE automation IN ('s_ping', 's_pong') AND status = 'hot' GROUP BY 1, 2 ORDER BY 1;
SELECT automation.drop_automation('s_ping'), automation.drop_automation('s_pong');

-- the breaker: five failed runs in a row (R003-9)
SELECT status FROM automation.define('s_fails', trigger => automation.on_created('s_item', filter => 'new.id >= 2000'),
    steps => ARRAY[automation.sql($$ INSERT INTO effect (what) VALUES (1 / {{ new.n }}) $$)]);
INSERT INTO item VALUES (2001, 0), (2002, 0), (2003, 0), (2004, 0), (2005, 1), (2006, 0), (2007, 0), (2008, 0), (2009, 0);
SELECT automation.drain() > 0 AS worked;
-- a completed one begins anew
SELECT * FROM state;
INSERT INTO item VALUES (2010, 0);
SELECT automation.drain() > 0 AS worked;
SELECT * FROM state;
SELECT level, code, automation, message, detail FROM automation.log WHERE automation = 's_fails';
SELECT role, action FROM automation.audit_log WHERE automation = 's_fails' AND action = 'automation.paused';
-- active again it begins anew
SELECT ok FROM automation.activate('s_fails');
INSERT INTO item VALUES (2011, 0), (2012, 0), (2013, 0), (2014, 0);
SELECT automation.drain() > 0 AS worked;
SELECT * FROM state;
INSERT INTO item VALUES (2015, 0);
SELECT automation.drain() > 0 AS worked;
SELECT * FROM state;
SELECT automation.drop_automation('s_fails');
-- of another size, or off
SELECT status FROM automation.define('s_two', breaker => 2, trigger => automation.on_created('s_item', filter => 'new.id >= 2000'),
    steps => ARRAY[automation.sql('SELECT 1 / 0')]);
SELECT status FROM automation.define('s_off', breaker => 0, trigger => automation.on_created('s_item', filter => 'new.id >= 2000'),
    steps => ARRAY[automation.sql('SELECT 1 / 0')]);
INSERT INTO item VALUES (2021), (2022), (2023), (2024), (2025), (2026);
SELECT automation.drain() > 0 AS worked;
SELECT name, status FROM state;
SELECT * FROM shown;
SELECT automation.drop_automation('s_two'), automation.drop_automation('s_off');
SELECT count(*) FROM automation_internal.breaker;

-- an entity lock is no obstacle to runs one after the other
SELECT status FROM automation.define('s_lock', entity_lock => true, concurrency => 1, priority => 5,
    trigger => automation.on_created('s_item'), steps => ARRAY[automation.sql($$ INSERT INTO effect (what) VALUES ('locked') $$)]);
INSERT INTO item VALUES (3001), (3002);
SELECT automation.drain() > 0 AS worked;
SELECT * FROM shown;
SELECT automation.drop_automation('s_lock');

-- how long runs are kept: so many of them, or so long
SELECT status FROM automation.define('s_few', retention => '{"runs": 2}', trigger => automation.on_created('s_item'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT status FROM automation.define('s_short', retention => '1 day', trigger => automation.on_created('s_item'), steps => ARRAY[automation.sql('SELECT 1')]);
INSERT INTO item VALUES (4001), (4002), (4003), (4004);
SELECT automation.drain() > 0 AS worked;
UPDATE automation_internal.run_history SET ended_at = ended_at - interval '25 hours'
 WHERE automation_id = (SELECT id FROM automation_internal.automation WHERE name = 's_short') AND entity_id < '4003';
SELECT automation.sweep() >= 0 AS swept;
SELECT automation, array_agg(entity ORDER BY entity) FROM automation.runs WHERE automation IN ('s_few', 's_short') GROUP BY 1 ORDER BY 1;
SELECT automation.drop_automation('s_few'), automation.drop_automation('s_short');

-- tenants take turns, and a higher priority comes first: three of red's were queued before the others came
CREATE TABLE lane (id int PRIMARY KEY, who text);
SELECT automation.watch_table('lane', kind => 's_lane', tenant_column => 'who');
CREATE TABLE served (n serial, what text);
SELECT status FROM automation.define('s_normal', trigger => automation.on_changed('s_lane'),
    steps => ARRAY[automation.sql($$ INSERT INTO served (what) VALUES ({{ new.who }} || ' ' || {{ new.id }}) $$)]);
SELECT status FROM automation.define('s_urgent', trigger => automation.on_created('s_lane', filter => 'new.id % 10 = 4'), priority => 10,
    steps => ARRAY[automation.sql($$ INSERT INTO served (what) VALUES ('urgent ' || {{ new.id }}) $$)]);
SELECT status FROM automation.define('s_lazy', trigger => automation.on_created('s_lane', filter => 'new.id % 10 = 1'), priority => -10,
    steps => ARRAY[automation.sql($$ INSERT INTO served (what) VALUES ('lazy ' || {{ new.id }}) $$)]);
INSERT INTO lane VALUES (11, 'red'), (12, 'red'), (13, 'red');
SELECT automation.route(1000);
INSERT INTO lane VALUES (21, 'blue'), (22, 'blue'), (14, 'red');
SELECT automation.route(1000);
-- an entity that moves to another tenant keeps its order
UPDATE lane SET who = 'green' WHERE id = 13;
UPDATE lane SET id = 33 WHERE id = 13;
SELECT automation.route(1000);
SELECT automation.drain() > 0 AS worked;
SELECT what FROM served ORDER BY n;
SELECT automation.drop_automation('s_normal'), automation.drop_automation('s_urgent'), automation.drop_automation('s_lazy');
SELECT automation.unwatch_table('lane');

-- mistakes
SELECT automation.define('s_bad', priority => 101, trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('s_bad', retention => 'forever', trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('s_bad', max_executions => '0 per 1 minute', trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('s_bad', max_executions => '10 a minute', trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('s_bad', max_executions => '{"count": -1, "window": "PT1M"}', trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('s_bad', concurrency => 0, trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('s_bad', dedup => '{"ttl": "10 minutes"}', trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('s_bad', dedup => automation.dedup('new.ref +'), trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('s_bad', breaker => -1, trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('s_bad', tenant => '_system', trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.unwatch_table('item');
DROP SCHEMA safe CASCADE;
