-- attack: lose the deletion of a row by moving it to a partition that refuses it, then rolling back something else
-- attacker: app, who may write a watched partitioned table
-- must not happen: the row is gone and the log does not say so
\i :attack_lib
\ir recipes/moved_row.sql
GRANT USAGE ON SCHEMA tabowner TO app;
GRANT SELECT, INSERT, UPDATE ON tabowner.p TO app;
SET SESSION AUTHORIZATION app;
BEGIN;
UPDATE tabowner.p SET k = 2 WHERE k = 1;
SAVEPOINT s;
INSERT INTO tabowner.p VALUES (7, 1, '{}');
ROLLBACK TO s;
COMMIT;
RESET SESSION AUTHORIZATION;
SELECT attack.held(count(*) = 0, 'the row is gone') FROM tabowner.p;
\ir recipes/moved_row_check.sql
SELECT attack.held(role = 'app', 'the event names the role that wrote') FROM automation.events WHERE kind = 'p' AND op = 'deleted';
