-- attack: superuser by REFRESH of a stranger's materialized view
-- attacker: tabowner, a role without any right in the engine that owns a watched partitioned table
-- must not happen: the function behind the attacker's cast runs with the rights of the role that refreshes it
\i :attack_lib
\ir recipes/moved_row.sql
SET SESSION AUTHORIZATION tabowner;
CREATE OR REPLACE FUNCTION tabowner.leave(int) RETURNS int LANGUAGE plpgsql VOLATILE AS
    $$ BEGIN UPDATE tabowner.p SET k = 2 WHERE k = 1; RETURN $1; END $$;
CREATE MATERIALIZED VIEW tabowner.m AS SELECT tabowner.leave(a) AS a FROM (VALUES (1)) AS v (a) WITH NO DATA;
RESET SESSION AUTHORIZATION;
REFRESH MATERIALIZED VIEW tabowner.m;
\ir recipes/moved_row_check.sql
