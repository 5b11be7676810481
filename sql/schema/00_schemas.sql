-- Each of these files looks names up in pg_catalog alone, and leaves the path as CREATE EXTENSION has set it to the
-- functions between the files, which pgrx generates without a schema. So no operator or type of a schema that stood ready
-- beforehand is ever taken. pgspot checks that, see tests/pgspot.sh.
-- Plain CREATE SCHEMA: a schema that somebody prepared beforehand must make the installation fail.
CREATE SCHEMA automation_internal;
REVOKE ALL ON SCHEMA automation_internal FROM PUBLIC;
COMMENT ON SCHEMA automation_internal IS 'Tables and helpers of automation_engine. Nobody but the extension writes here.';

-- Tables of the engine: singular nouns, written by the extension alone. Everything on the hot path (event,
-- run_history, stat, log) is insert-only; dispatch is the one queue, inserted by the conductor and deleted by executors.

-- Public views: plural, newest first. Each shows a caller only what belongs to roles it is a member of; a superuser
-- is a member of all. docs/rights.md says so view by view, and tests/pg_regress/sql/zz_rights.sql holds each view to it:
-- a security barrier, and for each table with an owner the clause pg_catalog.pg_has_role(<owner>, 'USAGE'). The clause is
-- written out, since a function of ours would need EXECUTE for every role that was granted SELECT on one view alone.
