-- attack: hold locks beyond the run, or end one's own process
-- attacker: mallory, author of the steps
-- must not happen: a lock outlives the run, or work of others is lost
\i :attack_lib
\c attack mallory
CREATE TABLE mallory.hostile (name text, statement text, expected text);
INSERT INTO mallory.hostile VALUES
    ('advisory', $h$ SELECT pg_advisory_lock(4711) $h$, 'completed'),
    ('advisory-shared', $h$ SELECT pg_advisory_lock_shared(1, 2) $h$, 'completed'),
    ('cancel', $h$ SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(5) $h$, '57014'),
    ('terminate-conductor', $h$ SELECT pg_terminate_backend((SELECT pid FROM automation.stat_workers WHERE worker = 'conductor')) $h$, '42501');
\ir recipes/hostile_steps.sql
\c attack postgres
SELECT attack.held(NOT rolsuper, 'mallory is no superuser') FROM pg_roles WHERE rolname = 'mallory';
SELECT attack.held(pg_try_advisory_lock(4711), 'the lock is free again');
SELECT pg_advisory_unlock(4711);
