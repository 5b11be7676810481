SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION automation_internal.running() RETURNS jsonb STABLE PARALLEL SAFE
LANGUAGE c AS 'MODULE_PATHNAME', 'running_wrapper';
COMMENT ON FUNCTION automation_internal.running() IS 'The runs that executors execute at this moment, of roles that you may act for: {"run": {"pid", "step", "since"}}.';
SET LOCAL search_path = automation, pg_temp;
