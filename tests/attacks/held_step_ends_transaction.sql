-- attack: end the transaction of the batch from a step
-- attacker: mallory, author of the steps
-- must not happen: a step's effect is committed without the engine's bookkeeping
\i :attack_lib
\c attack mallory
CREATE TABLE mallory.hostile (name text, statement text, expected text);
CREATE TABLE mallory.kept (n int);
CREATE PROCEDURE mallory.committing() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO mallory.kept VALUES (3); COMMIT; END $$;
INSERT INTO mallory.hostile VALUES
    ('commit', $h$ COMMIT $h$, '2D000'),
    ('rollback', $h$ ROLLBACK $h$, '2D000'),
    ('do-commit', $h$ DO $do$ BEGIN INSERT INTO mallory.kept VALUES (1); COMMIT; END $do$ $h$, '2D000'),
    ('do-rollback', $h$ DO $do$ BEGIN INSERT INTO mallory.kept VALUES (2); ROLLBACK; END $do$ $h$, '2D000'),
    ('call-commit', $h$ CALL mallory.committing() $h$, '2D000'),
    ('prepare', $h$ PREPARE TRANSACTION 'attack' $h$, '2D000'),
    ('savepoint', $h$ SAVEPOINT s $h$, '2D000'),
    ('begin', $h$ BEGIN $h$, '2D000');
\ir recipes/hostile_steps.sql
\c attack postgres
SELECT attack.held(NOT rolsuper, 'mallory is no superuser') FROM pg_roles WHERE rolname = 'mallory';
SELECT attack.held(count(*) = 0, 'nothing was committed on the way') FROM mallory.kept;
SELECT attack.held(count(*) = 0, 'no transaction is left prepared') FROM pg_prepared_xacts;
