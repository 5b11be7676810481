-- attack: drive the queue from inside a run
-- attacker: mallory, author of the steps
-- must not happen: a run runs runs, moves the cursor or stops the workers
\i :attack_lib
\c attack mallory
CREATE TABLE mallory.hostile (name text, statement text, expected text);
INSERT INTO mallory.hostile VALUES
    ('drain', $h$ SELECT automation.drain() $h$, '55000'),
    ('dispatch', $h$ SELECT automation.dispatch() $h$, '55000'),
    ('drain-caught', $h$ DO $do$ BEGIN PERFORM automation.drain(); EXCEPTION WHEN OTHERS THEN NULL; END $do$ $h$, 'completed'),
    ('route', $h$ SELECT automation.route() $h$, '42501'),
    ('timers', $h$ SELECT automation.run_timers() $h$, '42501'),
    ('sweep', $h$ SELECT automation.sweep() $h$, '42501'),
    ('stop', $h$ SELECT automation.stop_workers() $h$, '42501'),
    ('grant', $h$ SELECT automation.grant_usage('mallory', 'admin') $h$, '42501'),
    ('cancel-self', $h$ DO $do$ DECLARE r bigint; BEGIN FOR r IN SELECT id FROM automation.runs LOOP PERFORM automation.cancel_run(r); END LOOP; EXCEPTION WHEN OTHERS THEN NULL; END $do$ $h$, 'completed');
\ir recipes/hostile_steps.sql
\c attack postgres
SELECT attack.held(NOT rolsuper, 'mallory is no superuser') FROM pg_roles WHERE rolname = 'mallory';
SELECT attack.held(status = 'running', 'the conductor runs') FROM automation.status() WHERE item = 'conductor';
