SET LOCAL search_path = pg_catalog, pg_temp;
-- Who is started by the engine's own events, for the current version of each automation that is. Executors look here once
-- per batch: as long as it is empty, and nobody waits for such an event, runs tell nothing.
CREATE TABLE automation_internal.engine_listener (
    automation_id  integer NOT NULL REFERENCES automation_internal.automation ON DELETE CASCADE,
    version_id     integer NOT NULL,
    pattern        text    NOT NULL,
    CONSTRAINT engine_listener_pkey PRIMARY KEY (automation_id, pattern)
);
COMMENT ON TABLE automation_internal.engine_listener IS 'Triggers on events of the engine itself.';
SET LOCAL search_path = automation, pg_temp;
