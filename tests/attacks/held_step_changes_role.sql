-- attack: become another role in a step
-- attacker: mallory, author of the steps
-- must not happen: a step runs as a role other than its owner, or leaves the next run as one
\i :attack_lib
\c attack mallory
CREATE TABLE mallory.hostile (name text, statement text, expected text);
INSERT INTO mallory.hostile VALUES
    ('reset-role', $h$ DO $do$ BEGIN RESET ROLE; ALTER ROLE mallory SUPERUSER; END $do$ $h$, '42501'),
    ('set-role', $h$ SET ROLE postgres $h$, '42501'),
    ('set-local-role', $h$ SET LOCAL ROLE alice $h$, '42501'),
    ('set-session', $h$ SET SESSION AUTHORIZATION postgres $h$, '42501'),
    ('reset-session', $h$ DO $do$ BEGIN RESET SESSION AUTHORIZATION; ALTER ROLE mallory SUPERUSER; END $do$ $h$, '42501'),
    ('config-role', $h$ SELECT set_config('role', 'postgres', false) $h$, '42501'),
    ('config-session', $h$ SELECT set_config('session_authorization', 'postgres', false) $h$, '42501'),
    ('alter-role', $h$ ALTER ROLE mallory SUPERUSER $h$, '42501'),
    ('create-role', $h$ CREATE ROLE mallory_too SUPERUSER $h$, '42501'),
    ('grant-role', $h$ GRANT pg_read_server_files TO mallory $h$, '42501');
\ir recipes/hostile_steps.sql
\c attack postgres
SELECT attack.held(NOT rolsuper, 'mallory is no superuser') FROM pg_roles WHERE rolname = 'mallory';
SELECT attack.held(count(*) = 0, 'no role was made') FROM pg_roles WHERE rolname = 'mallory_too';
