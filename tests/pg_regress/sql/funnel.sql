-- How far runs come (R003-21, R003-26, R003-36 to R003-38): entered, completed, failed, cancelled per automation, active
-- derived from them; completed, failed, skipped and retried per step.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
CREATE SCHEMA fun;
SET search_path = fun, public;
CREATE TABLE allowed (id int);
SELECT automation.set_clock('2030-01-01 12:00+00') IS NOT NULL;
SELECT name FROM automation.define('f-funnel', trigger => automation.on_event('f.go'), steps => ARRAY[
    automation.sql('SELECT 1', id => 'look'),
    automation.branch('payload.n > 2', yes => 'end', no => NULL, id => 'far'),
    automation.sql('SELECT 1', id => 'middle'),
    automation.sql('SELECT 1', id => 'rare', condition => 'payload.n = 2'),
    automation.delay('1 hour', id => 'rest'),
    automation.sql('SELECT 1 / (4 - {{ payload.n }})', id => 'end')]);
CREATE VIEW funnel AS SELECT step, completed, failed, skipped, retried FROM automation.stat_steps WHERE automation = 'f-funnel';
CREATE VIEW runs AS SELECT entered, completed, failed, cancelled, skipped, active FROM automation.stat_automations WHERE automation = 'f-funnel';
SELECT * FROM funnel;
SELECT count(automation.emit('f.go', jsonb_build_object('n', n))) FROM generate_series(1, 5) AS n;
SELECT automation.drain();
-- 1 and 2 wait, 3 and 5 took the branch, 4 failed at its end (R003-26, R003-36); a forward branch skips what lies between (R003-37, R003-38)
SELECT * FROM runs;
SELECT * FROM funnel;
SELECT automation.advance('2 hours') IS NOT NULL;
SELECT automation.drain();
SELECT * FROM runs;
SELECT * FROM funnel;
-- one that is cancelled while it waits
SELECT automation.emit('f.go', '{"n": 1}') > 0;
SELECT automation.drain();
SELECT automation.cancel_run(id) FROM automation.runs WHERE automation = 'f-funnel' AND status = 'waiting';
SELECT * FROM runs;
SELECT * FROM funnel;
-- tries
SELECT name FROM automation.define('f-retry', trigger => automation.on_event('f.retry'), steps => ARRAY[
    automation.sql('SELECT 1 / count(*) FROM allowed', id => 'try', retry => automation.retry(2, '{1 minute,1 minute}'))]);
SELECT automation.emit('f.retry') > 0, automation.emit('f.retry') > 0;
SELECT automation.drain();
SELECT step, completed, failed, skipped, retried FROM automation.stat_steps WHERE automation = 'f-retry';
SELECT automation.advance('2 minutes') IS NOT NULL;
SELECT automation.drain();
INSERT INTO allowed VALUES (1);
SELECT automation.advance('2 minutes') IS NOT NULL;
SELECT automation.drain();
SELECT step, completed, failed, skipped, retried FROM automation.stat_steps WHERE automation = 'f-retry';
-- folding changes nothing that can be seen, and leaves one row per step
INSERT INTO automation_internal.stat_step SELECT -1, 'padding', 0, 0, 0, 0, 0, now() FROM generate_series(1, 20000);
SELECT automation.sweep() IS NOT NULL;
SELECT count(*) FROM automation_internal.stat_step WHERE automation_id = -1;
SELECT * FROM funnel;
DELETE FROM automation_internal.stat_step WHERE automation_id = -1;
-- a rolled back transaction counts nothing
BEGIN;
SELECT automation.emit('f.go', '{"n": 3}') > 0;
SELECT automation.drain();
ROLLBACK;
SELECT * FROM runs;
-- nor does pausing and resuming (R003-21)
SELECT ok FROM automation.pause('f-funnel');
SELECT ok FROM automation.resume('f-funnel');
SELECT * FROM runs;
-- others' steps are not seen
CREATE ROLE regress_f;
SELECT automation.grant_usage('regress_f', 'viewer');
SET ROLE regress_f;
SELECT count(*) FROM automation.stat_steps;
SELECT count(*) FROM automation.stat_tenants;
RESET ROLE;
SELECT automation.revoke_usage('regress_f');
SELECT automation.set_clock(NULL) IS NULL;
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'f-%';
SET client_min_messages = warning;
DROP SCHEMA fun CASCADE;
DROP ROLE regress_f;
