-- attack: leave settings behind for the next run, or switch protections off
-- attacker: mallory, author of the steps
-- must not happen: a setting of the server is changed, or one of the session outlives the step
\i :attack_lib
\c attack mallory
CREATE TABLE mallory.hostile (name text, statement text, expected text);
INSERT INTO mallory.hostile VALUES
    ('work-mem', $h$ SET work_mem = '64kB' $h$, 'completed'),
    ('timeout', $h$ SET SESSION statement_timeout = 1 $h$, 'completed'),
    ('config', $h$ SELECT set_config('work_mem', '64kB', false) $h$, 'completed'),
    ('read-only', $h$ SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY $h$, 'completed'),
    ('replica', $h$ SET session_replication_role = replica $h$, '42501'),
    ('capture', $h$ SET automation_engine.capture = off $h$, '42501'),
    ('enabled', $h$ SET automation_engine.enabled = off $h$, '55P02'),
    ('step-timeout', $h$ SET automation_engine.step_timeout = 0 $h$, '55P02'),
    ('superusers', $h$ SET automation_engine.allow_superuser_automations = on $h$, '55P02'),
    ('alter-system', $h$ ALTER SYSTEM SET automation_engine.enabled = off $h$, '%'),
    ('discard', $h$ DISCARD ALL $h$, '%'),
    ('reset-all', $h$ RESET ALL $h$, 'completed');
\ir recipes/hostile_steps.sql
\c attack postgres
SELECT attack.held(NOT rolsuper, 'mallory is no superuser') FROM pg_roles WHERE rolname = 'mallory';
SELECT attack.held(current_setting('automation_engine.enabled') = 'on', 'the engine is on');
SELECT attack.held(status = 'failed', 'ALTER SYSTEM was refused') FROM automation.runs WHERE automation = 'alter-system';
