-- attack: superuser by ANALYZE of a stranger's table
-- attacker: tabowner, a role without any right in the engine that owns a watched partitioned table
-- must not happen: the function behind the attacker's cast runs with the rights of the role that analyzes
\i :attack_lib
\ir recipes/moved_row.sql
SET SESSION AUTHORIZATION tabowner;
CREATE TABLE tabowner.v (a int);
CREATE INDEX ON tabowner.v (tabowner.leave(a));
INSERT INTO tabowner.v VALUES (1);
CREATE OR REPLACE FUNCTION tabowner.leave(int) RETURNS int LANGUAGE plpgsql VOLATILE AS
    $$ BEGIN UPDATE tabowner.p SET k = 2 WHERE k = 1; RETURN $1; END $$;
RESET SESSION AUTHORIZATION;
-- a session that has not planned the index yet
\c attack postgres
ANALYZE tabowner.v;
\ir recipes/moved_row_check.sql
