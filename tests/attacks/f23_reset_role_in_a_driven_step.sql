-- attack: undo SET ROLE from a step, in the session of a superuser who drives the queue as the owner
-- attacker: mallory, author of the step; the superuser has SET ROLE mallory or SET SESSION AUTHORIZATION mallory
-- must not happen: the step gets the superuser's rights
\i :attack_lib
SELECT automation.stop_workers();
SELECT attack.wait_for($$ SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = 'attack' AND backend_type LIKE 'automation_engine%') $$);
\c attack mallory
SELECT automation.define('m-rise', trigger => automation.on_event('m.rise'), breaker => 0, steps => ARRAY[
    automation.sql($$ DO $do$ BEGIN RESET ROLE; ALTER ROLE mallory SUPERUSER; END $do$ $$)]);
SELECT automation.define('m-rise-session', trigger => automation.on_event('m.rise'), breaker => 0, steps => ARRAY[
    automation.sql($$ DO $do$ BEGIN RESET SESSION AUTHORIZATION; ALTER ROLE mallory SUPERUSER; END $do$ $$)]);
SELECT automation.define('m-rise-config', trigger => automation.on_event('m.rise'), breaker => 0, steps => ARRAY[
    automation.sql($$ DO $do$ BEGIN PERFORM set_config('role', 'none', false); ALTER ROLE mallory SUPERUSER; END $do$ $$)]);
SELECT automation.emit('m.rise');
\c attack postgres
SET ROLE mallory;
SELECT automation.drain();
RESET ROLE;
SELECT attack.held(NOT rolsuper, 'no superuser after SET ROLE and drain()') FROM pg_roles WHERE rolname = 'mallory';
SELECT attack.held(count(*) = 3 AND bool_and(status = 'failed' AND sqlstate = '42501'), 'each step failed with 42501')
  FROM automation.runs WHERE automation LIKE 'm-rise%';
SELECT automation.emit('m.rise');
SET SESSION AUTHORIZATION mallory;
SELECT automation.drain();
RESET SESSION AUTHORIZATION;
SELECT attack.held(NOT rolsuper, 'no superuser after SET SESSION AUTHORIZATION and drain()') FROM pg_roles WHERE rolname = 'mallory';
SELECT attack.held(count(*) = 6 AND bool_and(status = 'failed'), 'each step failed again')
  FROM automation.runs WHERE automation LIKE 'm-rise%';
