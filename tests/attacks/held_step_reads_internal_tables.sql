-- attack: read and write the engine's own tables from a step
-- attacker: mallory, author of the steps
-- must not happen: a row of the engine is read, forged, changed or removed
\i :attack_lib
\c attack mallory
CREATE TABLE mallory.hostile (name text, statement text, expected text);
INSERT INTO mallory.hostile VALUES
    ('read-queue', $h$ DO $do$ BEGIN EXECUTE 'SELECT count(*) FROM automation_internal.dispatch'; END $do$ $h$, '42501'),
    ('read-secrets', $h$ DO $do$ BEGIN EXECUTE 'SELECT * FROM automation_internal.secret'; END $do$ $h$, '42501'),
    ('take-automation', $h$ DO $do$ BEGIN EXECUTE 'UPDATE automation_internal.automation SET owner = 10'; END $do$ $h$, '42501'),
    ('forge-run', $h$ DO $do$ BEGIN EXECUTE 'INSERT INTO automation_internal.dispatch (owner, id) VALUES (10, 1)'; END $do$ $h$, '42501'),
    ('remove-log', $h$ DO $do$ BEGIN EXECUTE 'DELETE FROM automation_internal.audit'; END $do$ $h$, '42501'),
    ('write-view', $h$ DO $do$ BEGIN EXECUTE 'UPDATE automation.automations SET owner = ''postgres'''; END $do$ $h$, '55000'),
    ('lock-queue', $h$ DO $do$ BEGIN EXECUTE 'LOCK TABLE automation_internal.dispatch'; END $do$ $h$, '42501'),
    ('call-internal', $h$ DO $do$ BEGIN EXECUTE 'SELECT automation_internal.announce_extension()'; END $do$ $h$, '42501'),
    ('drop-extension', $h$ DROP EXTENSION automation_engine $h$, '42501');
\ir recipes/hostile_steps.sql
\c attack postgres
SELECT attack.held(NOT rolsuper, 'mallory is no superuser') FROM pg_roles WHERE rolname = 'mallory';
SELECT attack.held(bool_and(owner = 'mallory'), 'every automation is still mallory''s') FROM automation.automations;
