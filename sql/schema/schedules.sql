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

CREATE VIEW automation.ticks WITH (security_barrier) AS
SELECT t.tick,
       a.name AS automation,
       s.trigger_id AS trigger,
       t.status,
       t.reason,
       t.run_id,
       t.made_up,
       t.missed,
       t.at,
       a.tenant
  FROM automation_internal.tick AS t
  JOIN automation_internal.schedule AS s ON s.id = t.schedule_id
  JOIN automation_internal.automation AS a ON a.id = s.automation_id
 WHERE pg_catalog.pg_has_role(a.owner, 'USAGE')
 ORDER BY t.tick DESC;
COMMENT ON VIEW automation.ticks IS 'What became of each tick of your triggers by the clock, newest first; the next ones are in timers.';
COMMENT ON COLUMN automation.ticks.tick IS 'The time of the schedule that it stands for.';
COMMENT ON COLUMN automation.ticks.automation IS 'Of which automation.';
COMMENT ON COLUMN automation.ticks.trigger IS 'Of which of its triggers.';
COMMENT ON COLUMN automation.ticks.status IS 'started (see run_id), queued behind the run before, skipped or missed.';
COMMENT ON COLUMN automation.ticks.reason IS 'Why it started no run, or not yet.';
COMMENT ON COLUMN automation.ticks.run_id IS 'The run it started, see automation.runs.';
COMMENT ON COLUMN automation.ticks.made_up IS 'It was missed and is made up for.';
COMMENT ON COLUMN automation.ticks.missed IS 'How many ticks just before it were missed.';
COMMENT ON COLUMN automation.ticks.at IS 'When that was decided.';
COMMENT ON COLUMN automation.ticks.tenant IS 'Tenant that the automation was defined for.';
SET LOCAL search_path = automation, pg_temp;
