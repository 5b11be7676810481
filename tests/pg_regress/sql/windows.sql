-- window: so many occurrences within a trailing time (R000-39 to R000-45), each emission counted once, also if it comes
-- again (R000-46), whoever counts (R000-47). The clock is set, so nothing waits.
\set SHOW_CONTEXT never
CREATE SCHEMA win;
SET search_path = win, public;
CREATE TABLE login (id int PRIMARY KEY, who text, ok boolean, tenant text);
SELECT automation.watch_table('login', kind => 'w_login', tenant_column => 'tenant');
CREATE TABLE alarm (n serial, who text, counted int, threshold int, key text);
CREATE VIEW refused AS SELECT automation, trigger, reason, count FROM automation.stat_gates WHERE automation LIKE 'w\_%';

SELECT status FROM automation.define('w_guess',
    trigger => automation.on_created('w_login', filter => 'not new.ok', window_count => 3,
                                     window_within => '10 minutes', window_per => 'new.who'),
    steps => ARRAY[automation.sql($$ INSERT INTO alarm (who, counted, threshold, key)
        VALUES ({{ new.who }}, {{ window.count }}, {{ window.threshold }}, {{ window.key }}) $$)]);
SELECT status FROM automation.define('w_once',
    trigger => automation.on_created('w_login', window_count => 2, window_within => '10 minutes', window_per => 'new.who',
                                     refire => 'once'),
    steps => ARRAY[automation.sql($$ INSERT INTO alarm (who, counted) VALUES ('once ' || {{ new.who }}, {{ window.count }}) $$)]);

-- only what passes the filter counts (R000-39), people apart (R000-40), with every occurrence from the third on (R000-42)
BEGIN;
SELECT automation.set_clock('2030-01-01 00:00+00') IS NULL AS set;
INSERT INTO login VALUES (1, 'ann', false), (2, 'ann', true), (3, 'bob', false), (4, 'ann', false);
SELECT automation.drain() > 0 AS worked;
SELECT who, counted, threshold, key FROM alarm ORDER BY n;
SELECT automation.advance('9 minutes') IS NULL AS advanced;
INSERT INTO login VALUES (5, 'ann', false), (6, 'ann', false);
SELECT automation.drain() > 0 AS worked;
SELECT who, counted, threshold, key FROM alarm ORDER BY n;
-- an occurrence still counts at exactly ten minutes, and not a moment later
SELECT automation.advance('1 minute') IS NULL AS advanced;
INSERT INTO login VALUES (7, 'bob', false);
SELECT automation.drain() > 0 AS worked;
SELECT automation.advance('1 microsecond') IS NULL AS advanced;
INSERT INTO login VALUES (8, 'bob', false);
SELECT automation.drain() > 0 AS worked;
-- 'once' fires when the count reaches the threshold, each time it comes from below (R000-42)
SELECT who, counted FROM alarm WHERE n > 0 ORDER BY n;
SELECT * FROM refused;
-- each occurrence that counts has a row of its own (R000-41), which is kept as long as the window looks back
SELECT a.name, count(*), bool_and(w.keep_until = w.at + interval '10 minutes') AS kept_for_the_window
  FROM automation_internal.window_event AS w JOIN automation_internal.automation AS a ON a.id = w.automation_id
 WHERE a.name LIKE 'w\_%' GROUP BY 1 ORDER BY 1;
ROLLBACK;

-- what is refused by a window leaves no run, and the counts stay
INSERT INTO login VALUES (11, 'eve', false), (12, 'eve', false);
SELECT automation.drain() > 0 AS worked;
SELECT automation, count(*) FROM automation.runs WHERE automation LIKE 'w\_%' GROUP BY 1 ORDER BY 1;
INSERT INTO login VALUES (13, 'eve', false);
SELECT automation.drain() > 0 AS worked;
SELECT automation, count(*) FROM automation.runs WHERE automation LIKE 'w\_%' GROUP BY 1 ORDER BY 1;
-- a partition that is null falls back to the entity, never to one for all; tenants are apart (R000-40)
INSERT INTO login VALUES (21, NULL, false, NULL), (22, NULL, false, NULL), (23, NULL, false, NULL), (24, 'zoe', false, 'red'),
                         (25, 'zoe', false, 'blue'), (26, 'zoe', false, 'red'), (27, 'zoe', false, 'blue');
SELECT automation.drain() > 0 AS worked;
SELECT DISTINCT w.key FROM automation_internal.window_event AS w ORDER BY 1;
SELECT who FROM alarm WHERE who LIKE '%zoe' ORDER BY n;
-- an edit elsewhere keeps the count, an edit of the trigger begins anew
SELECT version FROM automation.define('w_guess', description => 'watches guesses',
    trigger => automation.on_created('w_login', filter => 'not new.ok', window_count => 3,
                                     window_within => '10 minutes', window_per => 'new.who'),
    steps => ARRAY[automation.sql($$ INSERT INTO alarm (who) VALUES ('second ' || {{ new.who }}) $$)]);
INSERT INTO login VALUES (31, 'eve', false);
SELECT automation.drain() > 0 AS worked;
SELECT who FROM alarm ORDER BY n DESC LIMIT 1;
SELECT version FROM automation.define('w_guess',
    trigger => automation.on_created('w_login', filter => 'not new.ok', window_count => 2,
                                     window_within => '10 minutes', window_per => 'new.who'),
    steps => ARRAY[automation.sql($$ INSERT INTO alarm (who) VALUES ('third ' || {{ new.who }}) $$)]);
INSERT INTO login VALUES (32, 'eve', false);
SELECT automation.drain() > 0 AS worked;
SELECT who FROM alarm ORDER BY n DESC LIMIT 1;
INSERT INTO login VALUES (33, 'eve', false);
SELECT automation.drain() > 0 AS worked;
SELECT who FROM alarm ORDER BY n DESC LIMIT 1;
-- custom events without an entity are counted by topic, and the count is seen after a wait as well
SELECT status FROM automation.define('w_topic', trigger => automation.on_event('win.ping', window_count => 2, window_within => '1 hour'),
    steps => ARRAY[automation.delay('1 minute'), automation.sql($$ INSERT INTO alarm (who, counted) VALUES ('topic', {{ window.count }}) $$)]);
BEGIN;
SELECT automation.set_clock('2030-01-01 00:00+00') IS NULL AS set;
SELECT automation.emit('win.ping') > 0 AS emitted, automation.emit('win.ping') > 0 AS emitted;
SELECT automation.drain() > 0 AS worked;
SELECT automation.advance('1 minute') IS NULL AS advanced;
SELECT automation.drain() > 0 AS worked;
SELECT who, counted FROM alarm WHERE who = 'topic';
COMMIT;
-- pruned when no window looks back so far, which goes by the clock on the wall; what is younger stays (R000-44)
BEGIN;
SELECT automation.set_clock('2020-01-01 00:00+00') IS NULL AS set;
INSERT INTO login VALUES (41, 'old', false);
SELECT automation.drain() > 0 AS worked;
SELECT automation.set_clock(NULL) IS NULL AS unset;
INSERT INTO login VALUES (42, 'young', false);
SELECT automation.drain() > 0 AS worked;
CREATE VIEW counted AS SELECT a.name, w.key, w.keep_until > now() AS looks_back FROM automation_internal.window_event AS w
  JOIN automation_internal.automation AS a ON a.id = w.automation_id WHERE w.key IN ('per old', 'per young') ORDER BY 1, 2;
SELECT * FROM counted;
SELECT automation.sweep() IS NOT NULL AS swept;
SELECT * FROM counted;
ROLLBACK;
-- dropping the automation takes its counts along (R000-45)
SELECT automation.drop_automation('w_guess'), automation.drop_automation('w_once'), automation.drop_automation('w_topic');
SELECT count(*) FROM automation_internal.window_event;

-- mistakes; no window looks back longer than 24 hours (R000-44)
SELECT automation.define('w_bad', trigger => automation.on_created('w_login', window_count => 3, window_within => '24 hours 1 second'), steps => ARRAY[automation.sql('SELECT 1')]);
\set VERBOSITY default
SELECT automation.define('w_bad', trigger => automation.on_created('w_login', window_count => 3), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('w_bad', trigger => automation.on_created('w_login', window_count => 0, window_within => '1 minute'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('w_bad', trigger => automation.on_created('w_login', window_count => 1001, window_within => '1 minute'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('w_bad', trigger => automation.on_created('w_login', window_count => 3, window_within => '25 hours'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('w_bad', trigger => automation.on_created('w_login', window_count => 3, window_within => '-1 hours'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('w_bad', trigger => automation.on_created('w_login', window_count => 3, window_within => '1 hour', refire => 'sometimes'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('w_bad', trigger => automation.on_created('w_login', window_count => 3, window_within => '1 hour', window_per => 'new.whom'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('w_bad', trigger => automation.on_created('w_login', window_count => 3, window_within => '1 hour', window_per => 'new.who +'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.unwatch_table('login');
DROP SCHEMA win CASCADE;
