-- Each of these files looks names up in pg_catalog alone, and leaves the path as CREATE EXTENSION has set it to the
-- functions between the files, which pgrx generates without a schema. So no operator or type of a schema that stood ready
-- beforehand is ever taken. pgspot checks that, see tests/pgspot.sh.
-- Plain CREATE SCHEMA: a schema that somebody prepared beforehand must make the installation fail.
CREATE SCHEMA automation_internal;
REVOKE ALL ON SCHEMA automation_internal FROM PUBLIC;
COMMENT ON SCHEMA automation_internal IS 'Tables and helpers of automation_engine. Nobody but the extension writes here.';
