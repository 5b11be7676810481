SET LOCAL search_path = pg_catalog, pg_temp;
-- Triggers with hold_for: what is being held, and until when. One row per automation, trigger and what it is about. Its
-- number is that of the run it becomes, or of the skipped run that says why it did not. Executors alone write rows, in the order
-- of the dispatches with the same ordering_key; pausing, dropping and redefining remove them. active_since: a row that is left
-- over from before a pause is not that of the automation that is active now. event: the one that began it; heard: the
-- last one since that left it as it is.
CREATE TABLE automation_internal.dwell (
    run_id         bigint      NOT NULL CONSTRAINT dwell_pkey PRIMARY KEY,
    automation_id  integer     NOT NULL,
    trigger_id     text        NOT NULL,
    key            text        NOT NULL,
    owner          oid         NOT NULL,
    version_id     integer     NOT NULL,
    trigger_no     smallint    NOT NULL,
    ordering_key   bigint      NOT NULL,
    fingerprint    bigint      NOT NULL,
    active_since   timestamptz NOT NULL,
    since          timestamptz NOT NULL,
    deadline       timestamptz NOT NULL,
    event          json        NOT NULL,
    heard          json,
    CONSTRAINT dwell_automation_id_trigger_id_key_key UNIQUE (automation_id, trigger_id, key)
) WITH (fillfactor = 70);
COMMENT ON TABLE automation_internal.dwell IS 'Triggers that have fired and must stay so until a deadline (hold_for).';
-- serves whoever ends all that is held under a key, after TRUNCATE
CREATE INDEX dwell_ordering_key_automation_id_trigger_id_idx
    ON automation_internal.dwell (ordering_key, automation_id, trigger_id);

-- A number that could not be worked out is neither inside nor outside a range: whether it was outside before is remembered
-- here until the next change tells.
CREATE TABLE automation_internal.numeric_memory (
    automation_id  integer     NOT NULL,
    trigger_id     text        NOT NULL,
    key            text        NOT NULL,
    fingerprint    bigint      NOT NULL,
    active_since   timestamptz NOT NULL,
    armed          boolean     NOT NULL,
    at             timestamptz NOT NULL,
    CONSTRAINT numeric_memory_pkey PRIMARY KEY (automation_id, trigger_id, key)
);
COMMENT ON TABLE automation_internal.numeric_memory IS 'Numbers that cannot be worked out at the moment: were they outside the range before? Kept for 31 days.';
SET LOCAL search_path = automation, pg_temp;
