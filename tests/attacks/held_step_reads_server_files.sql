-- attack: reach the server's files and programs from a step
-- attacker: mallory, author of the steps
-- must not happen: a file of the server is read or written, or a program is run
\i :attack_lib
\c attack mallory
CREATE TABLE mallory.hostile (name text, statement text, expected text);
INSERT INTO mallory.hostile VALUES
    ('copy-program', $h$ COPY (SELECT 1) TO PROGRAM 'cat > /tmp/attack_was_here' $h$, '42501'),
    ('copy-from-program', $h$ DO $do$ BEGIN CREATE TABLE mallory.t (t text); COPY mallory.t FROM PROGRAM 'id'; END $do$ $h$, '42501'),
    ('copy-from-file', $h$ DO $do$ BEGIN CREATE TABLE mallory.t (t text); COPY mallory.t FROM '/etc/passwd'; END $do$ $h$, '42501'),
    ('copy-to-file', $h$ COPY (SELECT 1) TO '/tmp/attack_was_here' $h$, '42501'),
    ('lo-import', $h$ SELECT lo_import('/etc/passwd') $h$, '42501'),
    ('lo-export', $h$ SELECT lo_export(lo_create(0), '/tmp/attack_was_here') $h$, '42501'),
    ('read-file', $h$ SELECT pg_read_file('PG_VERSION') $h$, '42501'),
    ('list-files', $h$ SELECT pg_ls_dir('.') $h$, '42501'),
    ('copy-stdout', $h$ DO $do$ BEGIN EXECUTE 'COPY (SELECT 1) TO STDOUT'; END $do$ $h$, '0A000'),
    ('load', $h$ LOAD 'dblink' $h$, '42501');
\ir recipes/hostile_steps.sql
\c attack postgres
SELECT attack.held(NOT rolsuper, 'mallory is no superuser') FROM pg_roles WHERE rolname = 'mallory';
SELECT attack.held(pg_stat_file('/tmp/attack_was_here', true) IS NULL, 'no file was written');
