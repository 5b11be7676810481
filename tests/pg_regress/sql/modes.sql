-- Modes: what a start does while a run with the same key is under way (D13, Home Assistant 4.4, R003-25).
\set SHOW_CONTEXT never
\getenv dir PG_ABS_SRCDIR
\set check :dir '/check/waits.sql'
CREATE SCHEMA modes;
SET search_path = modes, public;
CREATE TABLE job (id int PRIMARY KEY, step int, line text);
SELECT automation.watch_table('job', kind => 'm_job');
CREATE TABLE done (n serial, what text);
CREATE VIEW shown AS SELECT automation, entity, key, runs.status, ended_reason, waiting_for FROM automation.runs
  JOIN automation.automations AS a ON a.name = automation ORDER BY automation, id;
CREATE FUNCTION with_mode(mode text, most int DEFAULT NULL, key text DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
    SELECT d.status FROM automation.define('m_' || mode, mode => mode, max_runs => most, key => key,
        trigger => automation.on_changed('m_job'),
        steps => ARRAY[automation.wait_signal('go ' || mode), automation.sql(format(
            'INSERT INTO done (what) VALUES (%L || {{ new.id }} || ''.'' || {{ new.step }})', mode || ' '))]) AS d $$;
INSERT INTO job VALUES (1, 0), (2, 0);

-- single: the second is skipped, another entity is not concerned (R003-25)
SELECT with_mode('single');
UPDATE job SET step = 1;
SELECT automation.drain() > 0 AS worked;
UPDATE job SET step = 2 WHERE id = 1;
SELECT automation.drain() > 0 AS worked;
SELECT * FROM shown;
SELECT automation.signal('go single') > 0 AS sent, automation.signal('go single') > 0 AS sent;
SELECT automation.drain() > 0 AS worked;
UPDATE job SET step = 3 WHERE id = 1;
SELECT automation.drain() > 0 AS worked;
SELECT * FROM shown;
SELECT what FROM done ORDER BY n;
-- two changes that are routed together: one starts, the other finds it under way
SELECT automation.cancel_run('run.automation = ''m_single''');
UPDATE job SET step = 4 WHERE id = 1;
UPDATE job SET step = 5 WHERE id = 1;
SELECT automation.drain() > 0 AS worked;
SELECT status, ended_reason FROM automation.runs WHERE automation = 'm_single' ORDER BY id DESC LIMIT 2;
SELECT trigger, reason, count FROM automation.stat_gates WHERE automation = 'm_single';
SELECT automation.drop_automation('m_single');
TRUNCATE done;

-- restart: the one under way is cancelled, the new one starts
SELECT with_mode('restart');
UPDATE job SET step = 11;
SELECT automation.drain() > 0 AS worked;
UPDATE job SET step = 12 WHERE id = 1;
UPDATE job SET step = 13 WHERE id = 1;
SELECT automation.drain() > 0 AS worked;
SELECT * FROM shown;
SELECT automation.signal('go restart') > 0 AS sent, automation.signal('go restart') > 0 AS sent;
SELECT automation.drain() > 0 AS worked;
SELECT what FROM done ORDER BY what;
SELECT * FROM shown;
-- a restart and a wake of the same run in one batch: the wake comes too late, the signal is for the new one
UPDATE job SET step = 14 WHERE id = 2;
SELECT automation.drain() > 0 AS worked;
UPDATE job SET step = 15 WHERE id = 2;
SELECT automation.route(1000);
SELECT automation.signal('go restart') > 0 AS sent;
SELECT automation.route(1000);
SELECT automation.drain() > 0 AS worked;
SELECT status, ended_reason FROM automation.runs WHERE automation = 'm_restart' ORDER BY id DESC LIMIT 2;
SELECT what FROM done ORDER BY n DESC LIMIT 1;
SELECT automation.drop_automation('m_restart');
TRUNCATE done;

-- queued: one after the other, first come first served, per key
SELECT with_mode('queued', 3, 'new.line');
UPDATE job SET line = 'a', step = 21 WHERE id = 1;
UPDATE job SET line = 'a', step = 22 WHERE id = 2;
UPDATE job SET line = 'b', step = 23 WHERE id = 2;
UPDATE job SET line = 'a', step = 24 WHERE id = 1;
UPDATE job SET line = 'a', step = 25 WHERE id = 1;
SELECT automation.drain() > 0 AS worked;
SELECT * FROM shown;
SELECT run_id IS NOT NULL AS run, automation, waiting_for, key FROM automation.waiting WHERE automation = 'm_queued' ORDER BY run_id;
SELECT automation.signal('go queued', key => 'a') > 0 AS sent;
SELECT automation.drain() > 0 AS worked;
SELECT what FROM done ORDER BY n;
SELECT * FROM shown;
-- cancelling one that is queued lets the others go on; cancelling the first calls the next
UPDATE job SET line = 'a', step = 26 WHERE id = 1;
SELECT automation.drain() > 0 AS worked;
SELECT automation.cancel_run(max(id)) FROM automation.runs WHERE automation = 'm_queued' AND key = 'a' AND status = 'pending';
SELECT automation.drain() > 0 AS worked;
SELECT automation.cancel_run(min(id)) FROM automation.runs WHERE automation = 'm_queued' AND key = 'a' AND status = 'waiting';
SELECT automation.drain() > 0 AS worked;
SELECT * FROM shown;
-- the sweep finds nothing to put right
SELECT automation.sweep() > 0 AS swept;
SELECT automation.drain() > 0 AS worked;
SELECT count(*) AS rescued FROM automation.log WHERE code = 'rescued_wakeup' AND automation LIKE 'm\_%';
\i :check
-- paused: what is queued ends with what is under way
SELECT ok FROM automation.pause('m_queued');
SELECT automation.signal('go queued', key => 'a') > 0 AS sent, automation.signal('go queued', key => 'b') > 0 AS sent;
SELECT automation.drain() > 0 AS worked;
SELECT status, ended_reason, count(*) FROM automation.runs WHERE automation = 'm_queued' GROUP BY 1, 2 ORDER BY 1, 2;
SELECT automation.drop_automation('m_queued');
TRUNCATE done;

-- parallel: up to ten runs for one entity, as many as one likes without one
SELECT with_mode('parallel');
UPDATE job SET step = 30 + 0 WHERE id = 1;
DO $$ BEGIN FOR i IN 31 .. 42 LOOP UPDATE job SET step = i WHERE id = 1; END LOOP; END $$;
SELECT automation.drain() > 0 AS worked;
SELECT status, ended_reason, count(*) FROM automation.runs WHERE automation = 'm_parallel' GROUP BY 1, 2 ORDER BY 1, 2;
SELECT with_mode('parallel', 12);
UPDATE job SET step = 43 WHERE id = 1;
UPDATE job SET step = 44 WHERE id = 1;
UPDATE job SET step = 45 WHERE id = 1;
SELECT automation.drain() > 0 AS worked;
SELECT status, ended_reason, count(*) FROM automation.runs WHERE automation = 'm_parallel' GROUP BY 1, 2 ORDER BY 1, 2;
SELECT automation.drop_automation('m_parallel');

-- starts by hand have no entity: they share the automation's only key
SELECT status FROM automation.define('m_hand', trigger => automation.on_call(), mode => 'single',
    steps => ARRAY[automation.wait_signal('go hand')]);
SELECT automation.start_run('m_hand') > 0 AS started, automation.start_run('m_hand') > 0 AS started;
SELECT automation.drain() > 0 AS worked;
SELECT * FROM shown WHERE automation = 'm_hand';
SELECT automation.drop_automation('m_hand');

-- one that runs itself: the second would wait for the first, which waits for it
SELECT status FROM automation.define('m_self', trigger => automation.on_call(), mode => 'queued', steps => ARRAY[automation.run('m_self', id => 'again')]);
SELECT automation.start_run('m_self') > 0 AS started;
SELECT automation.drain() > 0 AS worked;
SELECT * FROM shown WHERE automation = 'm_self';
SELECT automation.drop_automation('m_self');
-- a restart by a child ends the parent, and nothing twice
SELECT status FROM automation.define('m_child', trigger => automation.on_call(), mode => 'restart', steps => ARRAY[automation.run('m_child', id => 'again')]);
SELECT automation.start_run('m_child') > 0 AS started;
SELECT automation.drain() > 0 AS worked;
SELECT count(*) = count(DISTINCT id) AS each_once FROM automation.runs WHERE automation = 'm_child';
SELECT automation.drop_automation('m_child');

-- mistakes
SELECT automation.define('m_bad', mode => 'singel', trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('m_bad', mode => 'queued', max_runs => 0, trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('m_bad', mode => 'queued', max_runs => -1, trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('m_bad', mode => 'queued', max_runs => 1001, trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.unwatch_table('job');
DROP SCHEMA modes CASCADE;
