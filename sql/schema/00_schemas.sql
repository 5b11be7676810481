-- Plain CREATE SCHEMA: a schema that somebody prepared beforehand must make the installation fail.
CREATE SCHEMA automation_internal;
REVOKE ALL ON SCHEMA automation_internal FROM PUBLIC;
COMMENT ON SCHEMA automation_internal IS 'Tables and helpers of automation_engine. Nobody but the extension writes here.';
