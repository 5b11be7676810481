SET LOCAL search_path = pg_catalog, pg_temp;
-- What an automation writes, as its statements say when it is defined: for the warning that automations can start each other
-- in a circle. One row for each automation whose steps make anything; nothing here decides what runs.
CREATE TABLE automation_internal.automation_effect (
    automation_id  integer NOT NULL CONSTRAINT automation_effect_pkey PRIMARY KEY
                   REFERENCES automation_internal.automation ON DELETE CASCADE,
    node           jsonb   NOT NULL,
    writes         jsonb   NOT NULL
);
COMMENT ON TABLE automation_internal.automation_effect IS 'What starts an automation and what its steps make, to find loops. writes: relation, verb and columns.';
SET LOCAL search_path = automation, pg_temp;
