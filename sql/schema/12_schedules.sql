SET LOCAL search_path = pg_catalog, pg_temp;
-- The clock. One row per trigger that it fires; next_tick is empty while the automation is not active. Ticks are dealt with
-- by whoever has the router's cursor, who then moves last_tick and next_tick in the same transaction. Definers set a
-- schedule going, change it or put it to rest. run_id and event_id: the run that a tick started last.
CREATE TABLE automation_internal.schedule (
    id             bigint      GENERATED ALWAYS AS IDENTITY CONSTRAINT schedule_pkey PRIMARY KEY,
    automation_id  integer     NOT NULL,
    trigger_id     text        NOT NULL,
    timetable      text        NOT NULL,
    last_tick      timestamptz NOT NULL,
    next_tick      timestamptz,
    run_id         bigint,
    event_id       bigint,
    CONSTRAINT schedule_automation_id_trigger_id_key UNIQUE (automation_id, trigger_id)
) WITH (fillfactor = 50);
COMMENT ON TABLE automation_internal.schedule IS 'Triggers by the clock: the last tick that was dealt with (or since when it runs), and the next.';
-- serves the conductor
CREATE INDEX schedule_next_tick_idx ON automation_internal.schedule (next_tick) WHERE next_tick IS NOT NULL;

-- What became of each tick. The primary key is the wall against firing one twice.
CREATE TABLE automation_internal.tick (
    schedule_id  bigint      NOT NULL,
    tick         timestamptz NOT NULL,
    status       text        NOT NULL,
    reason       text,
    run_id       bigint,
    made_up      boolean     NOT NULL,
    missed       integer     NOT NULL,
    zone_data    text        NOT NULL,
    at           timestamptz NOT NULL,
    CONSTRAINT tick_pkey PRIMARY KEY (schedule_id, tick),
    CONSTRAINT tick_status_check CHECK (status IN ('started', 'queued', 'skipped', 'missed'))
);
COMMENT ON TABLE automation_internal.tick IS 'Ticks of schedules and what became of them, by which version of the time zone data; pruned with the history.';
-- serves whoever starts the next one
CREATE INDEX tick_queued_idx ON automation_internal.tick (schedule_id, tick) WHERE status = 'queued';
SET LOCAL search_path = automation, pg_temp;
