SET LOCAL search_path = pg_catalog, pg_temp;
CREATE FUNCTION automation_internal.capture_change() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'automation_capture_change';
COMMENT ON FUNCTION automation_internal.capture_change() IS 'Records a change of a watched table as an event.';
SET LOCAL search_path = automation, pg_temp;
