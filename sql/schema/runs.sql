SET LOCAL search_path = pg_catalog, pg_temp;
-- Runs: the queue of work, live runs with everything that can wake them, and the history of those that ended.

CREATE SEQUENCE automation_internal.run_id_seq CACHE 1;

CREATE TABLE automation_internal.dispatch (
    owner          oid         NOT NULL,
    id             bigint      NOT NULL,
    run_id         bigint      NOT NULL,
    event_id       bigint,
    event_at       timestamptz,
    created_at     timestamptz NOT NULL,
    ordering_key   bigint,
    automation_id  integer     NOT NULL,
    version_id     integer     NOT NULL,
    trigger_no     smallint    NOT NULL,
    attempt        smallint    NOT NULL DEFAULT 0,
    reason         "char"      NOT NULL,
    wait_no        integer,
    cause_id       bigint,
    cause_at       timestamptz,
    -- the derived topic on which the event was heard; NULL for its own
    topic          text,
    -- claims: one owner's rows in id order; the same index answers the look-up by id
    CONSTRAINT dispatch_pkey PRIMARY KEY (owner, id),
    -- the second wall against a double start; a wake has no event of its own (its cause may wake many)
    CONSTRAINT dispatch_event_id_automation_id_trigger_no_key UNIQUE (event_id, automation_id, trigger_no),
    CONSTRAINT dispatch_reason_check CHECK (reason IN ('t', 'm', 'w', 'd', 'e', 'g', 'r', 'k', 'z', 'x', 'a', 's', 'q', 'h', 'b', 'o', 'j')),
    CONSTRAINT dispatch_event_id_check CHECK ((event_id IS NOT NULL) = (reason IN ('t', 'm')))
);
COMMENT ON TABLE automation_internal.dispatch IS 'The queue of stage 2. Only the router inserts. The id is the place in the owner''s queue: by priority, then tenants in turn, each in the order of routing. Starts a run: t(rigger), m(anual). Wakes the wait wait_no of a run: w (something changed), d(ue), e(vent), g (signal), r(un ended), k (skip), z (go on after a freeze), x (the run took too long), a(rmed: look once more), s(weep: is all in order?), q (it may be its turn). For triggers with hold_for, with the event as cause: h (it fired: begin or go on), b (it may be broken), o(ver: its time has come). j: tends the bulk job run_id.';
-- the highest turn in any place of the queue, so that a router knows whether another has been at work since
CREATE SEQUENCE automation_internal.dispatch_id_seq CACHE 1;

-- serves the router: something under this key may be about to be held. src/store/dispatches.rs says which rows it has.
CREATE INDEX dispatch_held_idx ON automation_internal.dispatch (ordering_key) WHERE reason = 'h';

CREATE VIEW automation.dispatches WITH (security_barrier) AS
SELECT d.id,
       NULLIF(d.run_id, 0) AS run_id,
       a.name AS automation,
       CASE d.reason WHEN 't' THEN 'trigger' WHEN 'm' THEN 'manual' WHEN 'w' THEN 'wake' WHEN 'd' THEN 'due'
                     WHEN 'e' THEN 'event' WHEN 'g' THEN 'signal' WHEN 'r' THEN 'run_ended' WHEN 'k' THEN 'skip'
                     WHEN 'z' THEN 'thaw' WHEN 'x' THEN 'timeout' WHEN 'a' THEN 'arm' WHEN 's' THEN 'sweep'
                     WHEN 'q' THEN 'turn' WHEN 'h' THEN 'hold' WHEN 'b' THEN 'hold_check' WHEN 'o' THEN 'hold_over'
                     WHEN 'j' THEN 'bulk' END AS reason,
       COALESCE(d.event_id, d.cause_id) AS event_id,
       d.attempt,
       d.created_at,
       pg_catalog.pg_get_userbyid(d.owner) AS owner,
       a.tenant
  FROM automation_internal.dispatch AS d
  JOIN automation_internal.automation AS a ON a.id = d.automation_id
 WHERE pg_catalog.pg_has_role(d.owner, 'USAGE')
 ORDER BY d.id DESC;
COMMENT ON VIEW automation.dispatches IS 'Work that is routed but not yet done.';
COMMENT ON COLUMN automation.dispatches.id IS 'Place in the queue.';
COMMENT ON COLUMN automation.dispatches.run_id IS 'The run it will start or move.';
COMMENT ON COLUMN automation.dispatches.automation IS 'Of which automation.';
COMMENT ON COLUMN automation.dispatches.reason IS 'What starts it (trigger, manual) or moves it (wake, due, event, signal, run_ended, skip, thaw, timeout, arm, sweep, turn); hold, hold_check and hold_over are about what is held for a while; bulk begins the next rows of a bulk job.';
COMMENT ON COLUMN automation.dispatches.event_id IS 'The event behind it.';
COMMENT ON COLUMN automation.dispatches.attempt IS 'How often a server crash interrupted it.';
COMMENT ON COLUMN automation.dispatches.created_at IS 'When it was routed.';
COMMENT ON COLUMN automation.dispatches.owner IS 'The role that will run it.';
COMMENT ON COLUMN automation.dispatches.tenant IS 'Tenant that the automation was defined for.';

-- Column order and types are known to src/store/history.rs, which forms the tuples itself: change both together.
CREATE TABLE automation_internal.run_history (
    id             bigint      NOT NULL,
    event_id       bigint      NOT NULL,
    event_at       timestamptz NOT NULL,
    started_at     timestamptz NOT NULL,
    ended_at       timestamptz NOT NULL,
    owner          oid         NOT NULL,
    automation_id  integer     NOT NULL,
    version_id     integer     NOT NULL,
    trigger_no     smallint    NOT NULL,
    attempt        smallint    NOT NULL,
    depth          smallint    NOT NULL,
    status         text        NOT NULL,
    kind           text,
    entity_id      text,
    key            text,
    tenant         text,
    ended_reason   text,
    error          json,
    steps          json,
    parent         bigint,
    output         json,
    state          json,
    -- by the wall; ended_at goes by the clock of the session, which set_clock() may have set to any time
    recorded_at    timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    CONSTRAINT run_history_status_check CHECK (status IN ('completed', 'failed', 'cancelled', 'skipped', 'hot'))
) PARTITION BY RANGE (recorded_at);
COMMENT ON TABLE automation_internal.run_history IS 'Runs that ended, with their steps. output: the variables of a run that has any; state: where a failed run stood, for retry_run(). Insert-only; retention drops partitions.';
CREATE INDEX run_history_id_idx ON automation_internal.run_history (id);
CREATE TABLE automation_internal.run_history_default PARTITION OF automation_internal.run_history DEFAULT;

-- Of two sessions that retry the same run at once, the second waits here for the first. A retry that ended without having
-- taken a step does not stand, and another may take its place.
CREATE TABLE automation_internal.run_retry (
    run_id      bigint      NOT NULL,
    retry_of    bigint      NOT NULL,
    stands      boolean     NOT NULL DEFAULT true,
    ordered_at  timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    CONSTRAINT run_retry_pkey PRIMARY KEY (run_id)
);
COMMENT ON TABLE automation_internal.run_retry IS 'Which run repeats which, by retry_run(), skip_step() of a failed run or redrive(). Kept as long as the history.';
CREATE UNIQUE INDEX run_retry_stands_idx ON automation_internal.run_retry (retry_of) WHERE stands;

-- Runs that have suspended; one that ends in the walk that began it never gets here. Whoever moves a run locks its row;
-- a wake names the number of the wait it means, and comes too late if the run does not wait for that any more. The event
-- is kept with the run, because the log forgets sooner than a run may wait. Column order is known to src/store/live.rs.
CREATE TABLE automation_internal.run (
    id             bigint      NOT NULL CONSTRAINT run_pkey PRIMARY KEY,
    event_id       bigint      NOT NULL,
    event_at       timestamptz NOT NULL,
    started_at     timestamptz NOT NULL,
    parent         bigint,
    owner          oid         NOT NULL,
    automation_id  integer     NOT NULL,
    version_id     integer     NOT NULL,
    epoch          integer     NOT NULL,
    trigger_no     smallint    NOT NULL,
    depth          smallint    NOT NULL,
    status         text        NOT NULL,
    kind           text,
    entity_id      text,
    key            text,
    mode_key       text,
    tenant         text,
    event          json        NOT NULL,
    state          json        NOT NULL,
    waits          json        NOT NULL,
    steps          json        NOT NULL,
    CONSTRAINT run_status_check CHECK (status IN ('waiting', 'frozen', 'queued'))
) WITH (fillfactor = 70);
COMMENT ON TABLE automation_internal.run IS 'Live runs that wait, or are queued behind others with the same mode_key. waits: what for, for people and for the wake; state: where the machine stands.';
-- serves pause, drop and cancel, and whoever looks for runs with the same key
CREATE INDEX run_automation_id_mode_key_idx ON automation_internal.run (automation_id, mode_key);

CREATE FUNCTION automation_internal.running() RETURNS jsonb STABLE PARALLEL SAFE
LANGUAGE c AS 'MODULE_PATHNAME', 'running_wrapper';
COMMENT ON FUNCTION automation_internal.running() IS 'The runs that executors execute at this moment, of roles that you may act for: {"run": {"pid", "step", "since"}}.';

CREATE VIEW automation.runs WITH (security_barrier) AS
SELECT r.id,
       a.name AS automation,
       v.version,
       r.status,
       r.key,
       r.kind || ':' || r.entity_id AS entity,
       r.waiting_for,
       r.started_at,
       r.took,
       r.steps,
       CASE WHEN r.error IS NOT NULL
            THEN COALESCE(r.error ->> 'sqlstate', '') || ': ' || (r.error ->> 'message') END AS error,
       COALESCE(a.tenant, r.tenant) AS tenant,
       CASE WHEN r.trigger_no < 0 THEN 'manual'
            ELSE v.document -> 'triggers' -> r.trigger_no::integer ->> 'id' END AS trigger,
       r.event_id,
       r.parent,
       r.ended_at,
       r.ended_reason,
       r.attempt,
       r.error ->> 'sqlstate' AS sqlstate,
       r.error ->> 'message' AS message,
       r.error ->> 'detail' AS detail,
       r.error ->> 'hint' AS hint,
       r.error ->> 'context' AS context,
       (r.now ->> 'pid')::integer AS pid,
       r.now ->> 'step' AS step,
       timestamptz '2000-01-01 00:00:00+00' + (r.now ->> 'since')::bigint * interval '1 microsecond' AS since,
       (SELECT t.retry_of FROM automation_internal.run_retry AS t WHERE t.run_id = r.id) AS retry_of
  FROM (SELECT h.id, h.automation_id, h.version_id, h.trigger_no, h.event_id, h.status, h.key, h.kind, h.entity_id,
               h.started_at, h.ended_at, h.ended_at - h.started_at AS took,
               pg_catalog.json_array_length(COALESCE(h.steps, '[]')) AS steps, h.error, h.tenant, h.ended_reason,
               h.attempt, h.owner, h.parent, NULL::text AS waiting_for, NULL::jsonb AS now
          FROM automation_internal.run_history AS h
        UNION ALL
        SELECT l.id, l.automation_id, l.version_id, l.trigger_no, l.event_id,
               CASE WHEN (SELECT automation_internal.running()) ? l.id::text THEN 'running'
                    WHEN l.status = 'queued' THEN 'pending' ELSE 'waiting' END, l.key, l.kind, l.entity_id,
               l.started_at, NULL, COALESCE(timestamptz '2000-01-01 00:00:00+00'
                + pg_catalog.substring(pg_catalog.current_setting('automation_engine.clock', true),
                                     '^(-\d{1,17}|\d{1,18})$')::bigint * interval '1 microsecond',
                pg_catalog.clock_timestamp()) - l.started_at,
               pg_catalog.json_array_length(l.steps), NULL, l.tenant, NULL, 0, l.owner, l.parent,
               CASE WHEN (SELECT automation_internal.running()) ? l.id::text THEN NULL
                    WHEN l.status = 'frozen' THEN 'the automation to be active again'
                    WHEN l.status = 'queued' THEN 'its turn'
                    ELSE (SELECT pg_catalog.string_agg(w.value ->> 'for', '; ' ORDER BY w.ordinality)
                            FROM pg_catalog.json_array_elements(l.waits) WITH ORDINALITY AS w) END,
               -- read once by a query, and no join, which would stand in the way of an index on the number
               (SELECT automation_internal.running()) -> l.id::text
          FROM automation_internal.run AS l
        UNION ALL
        SELECT d.run_id, d.automation_id, d.version_id, d.trigger_no, d.event_id,
               CASE WHEN x.now IS NOT NULL THEN 'running' ELSE 'pending' END, NULL, e.kind, e.entity_id,
               timestamptz '2000-01-01 00:00:00+00' + (x.now ->> 'since')::bigint * interval '1 microsecond', NULL,
               pg_catalog.clock_timestamp()
                - (timestamptz '2000-01-01 00:00:00+00' + (x.now ->> 'since')::bigint * interval '1 microsecond'),
               0, NULL, e.tenant, NULL, d.attempt, d.owner,
               CASE WHEN e.op = 's' THEN (e.next ->> 'parent')::bigint END, NULL, x.now
          FROM automation_internal.dispatch AS d
         CROSS JOIN LATERAL (SELECT (SELECT automation_internal.running()) -> d.run_id::text AS now) AS x
          LEFT JOIN automation_internal.event AS e ON e.id = d.event_id AND e.occurred_at = d.event_at
         WHERE d.reason IN ('t', 'm')) AS r
  JOIN automation_internal.automation AS a ON a.id = r.automation_id
  JOIN automation_internal.automation_version AS v ON v.id = r.version_id
 WHERE pg_catalog.pg_has_role(r.owner, 'USAGE')
 ORDER BY r.id DESC;
COMMENT ON VIEW automation.runs IS 'Every run you may see, newest first: those that are queued, those that execute, those that wait and those that ended.';
COMMENT ON COLUMN automation.runs.id IS 'Number of the run, for timeline(id) and cancel_run(id).';
COMMENT ON COLUMN automation.runs.automation IS 'Which automation.';
COMMENT ON COLUMN automation.runs.version IS 'The version of the definition this run uses.';
COMMENT ON COLUMN automation.runs.status IS 'pending, running, waiting, completed, failed, cancelled, skipped or hot.';
COMMENT ON COLUMN automation.runs.key IS 'The value of the automation''s key expression.';
COMMENT ON COLUMN automation.runs.entity IS 'kind:id of what changed.';
COMMENT ON COLUMN automation.runs.waiting_for IS 'What a waiting run waits for.';
COMMENT ON COLUMN automation.runs.started_at IS 'When an executor began it.';
COMMENT ON COLUMN automation.runs.took IS 'From start to end.';
COMMENT ON COLUMN automation.runs.steps IS 'How many steps were executed or skipped.';
COMMENT ON COLUMN automation.runs.error IS 'SQLSTATE and message of what failed.';
COMMENT ON COLUMN automation.runs.tenant IS 'Tenant of the event, or of the automation.';
COMMENT ON COLUMN automation.runs.trigger IS 'Id of the trigger that fired, or manual.';
COMMENT ON COLUMN automation.runs.event_id IS 'The event that started it, see automation.events.';
COMMENT ON COLUMN automation.runs.parent IS 'The run that started this one.';
COMMENT ON COLUMN automation.runs.ended_at IS 'When it ended.';
COMMENT ON COLUMN automation.runs.ended_reason IS 'Why it ended as it did, for example step_failed.';
COMMENT ON COLUMN automation.runs.attempt IS 'How often a server crash interrupted it.';
COMMENT ON COLUMN automation.runs.sqlstate IS 'SQLSTATE of the error that failed it.';
COMMENT ON COLUMN automation.runs.message IS 'Message of that error.';
COMMENT ON COLUMN automation.runs.detail IS 'DETAIL of that error.';
COMMENT ON COLUMN automation.runs.hint IS 'HINT of that error.';
COMMENT ON COLUMN automation.runs.context IS 'CONTEXT of that error.';
COMMENT ON COLUMN automation.runs.pid IS 'Process id of the executor that executes it now, see pg_stat_activity.';
COMMENT ON COLUMN automation.runs.step IS 'The step that is executed now; of a long name the beginning. (commit) while deferred triggers of the steps execute.';
COMMENT ON COLUMN automation.runs.since IS 'When that executor took it up.';
COMMENT ON COLUMN automation.runs.retry_of IS 'The run that this one repeats, see retry_run().';

CREATE VIEW automation.run_steps WITH (security_barrier) AS
SELECT r.run_id,
       s.ordinality::integer AS seq,
       s.value ->> 'id' AS step,
       s.value ->> 'kind' AS kind,
       s.value ->> 'status' AS status,
       COALESCE((s.value ->> 'attempt')::integer, 1) AS attempt,
       r.started_at + ((s.value ->> 'at_us')::bigint * interval '1 microsecond') AS started_at,
       (s.value ->> 'took_us')::bigint * interval '1 microsecond' AS took,
       (s.value -> 'result')::jsonb AS result,
       s.value -> 'error' ->> 'message' AS error
  FROM (SELECT h.id AS run_id, h.owner, h.started_at, h.steps
          FROM automation_internal.run_history AS h
        UNION ALL
        SELECT l.id, l.owner, l.started_at, l.steps
          FROM automation_internal.run AS l) AS r
 CROSS JOIN LATERAL pg_catalog.json_array_elements(r.steps) WITH ORDINALITY AS s
 WHERE pg_catalog.pg_has_role(r.owner, 'USAGE')
 UNION ALL
SELECT l.id,
       (pg_catalog.json_array_length(l.steps) + w.ordinality)::integer,
       w.value ->> 'step',
       w.value ->> 'kind',
       'waiting',
       1,
       timestamptz '2000-01-01 00:00:00+00' + (w.value ->> 'since')::bigint * interval '1 microsecond',
       NULL,
       NULL,
       NULL
  FROM automation_internal.run AS l
 CROSS JOIN LATERAL pg_catalog.json_array_elements(l.waits) WITH ORDINALITY AS w
 WHERE pg_catalog.pg_has_role(l.owner, 'USAGE')
 ORDER BY run_id DESC, seq;
COMMENT ON VIEW automation.run_steps IS 'The steps of each run in the order in which they were taken.';
COMMENT ON COLUMN automation.run_steps.run_id IS 'The run.';
COMMENT ON COLUMN automation.run_steps.seq IS 'Counts the steps taken, from 1.';
COMMENT ON COLUMN automation.run_steps.step IS 'Id of the step in the definition.';
COMMENT ON COLUMN automation.run_steps.kind IS 'What kind of step: sql, delay, branch ...';
COMMENT ON COLUMN automation.run_steps.status IS 'pending, executing, waiting, completed, failed or skipped.';
COMMENT ON COLUMN automation.run_steps.attempt IS 'Which try this was.';
COMMENT ON COLUMN automation.run_steps.started_at IS 'When it began.';
COMMENT ON COLUMN automation.run_steps.took IS 'How long it took.';
COMMENT ON COLUMN automation.run_steps.result IS 'What it gave back, as steps.<id> shows it to later steps.';
COMMENT ON COLUMN automation.run_steps.error IS 'Message of the error that failed it.';

CREATE FUNCTION automation.timeline(run bigint)
RETURNS SETOF text LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT l.line
      FROM (SELECT 0 AS place,
                   'run ' || r.id || ' of "' || r.automation || '" version ' || r.version || ': ' || r.status
                   || COALESCE(' (' || r.ended_reason || ')', '')
                   || COALESCE(' in ' || pg_catalog.round((EXTRACT(epoch FROM r.took) * 1000)::numeric, 1) || ' ms', '')
                   AS line
              FROM automation.runs AS r
             WHERE r.id = $1
         UNION ALL
            SELECT 1,
                   'event ' || e.id || ' ' || e.topic || COALESCE(' ' || e.kind || ':' || e.entity_id, '')
                   || COALESCE(' by ' || e.actor, ' by ' || e.role)
              FROM automation.runs AS r
              JOIN automation.events AS e ON e.id = r.event_id
             WHERE r.id = $1
         UNION ALL
            SELECT 1 + s.seq,
                   'step ' || s.step || ' (' || s.kind || '): ' || s.status
                   || COALESCE(' in ' || pg_catalog.round((EXTRACT(epoch FROM s.took) * 1000)::numeric, 1) || ' ms', '')
                   || COALESCE(' ' || NULLIF(s.result::text, '{}'), '') || COALESCE(' ' || s.error, '')
              FROM automation.run_steps AS s
             WHERE s.run_id = $1) AS l
     ORDER BY l.place;
END;
COMMENT ON FUNCTION automation.timeline(bigint) IS 'What a run did, line by line.';

-- What can wake a run. source: s(tate of kind:entity_id), t(opic, exact, in kind), p(attern, in kind), g (signal named
-- kind with key entity_id), r(un with number entity_id). entity_id NULL means any. Ids stand apart from kinds, so that no
-- text can be taken for a wildcard or for another kind. Column order is known to src/store/wakes.rs.
CREATE TABLE automation_internal.wake_index (
    run_id         bigint      NOT NULL,
    wait_no        integer     NOT NULL,
    owner          oid         NOT NULL,
    automation_id  integer     NOT NULL,
    version_id     integer     NOT NULL,
    source         "char"      NOT NULL,
    kind           text        NOT NULL,
    entity_id      text,
    CONSTRAINT wake_index_source_check CHECK (source IN ('s', 't', 'p', 'g', 'r'))
);
COMMENT ON TABLE automation_internal.wake_index IS 'Which changes, events, signals and ends of runs may end a wait.';
-- serves the router
CREATE INDEX wake_index_source_kind_entity_id_idx ON automation_internal.wake_index (source, kind, entity_id);
-- serves whoever ends a wait
CREATE INDEX wake_index_run_id_wait_no_idx ON automation_internal.wake_index (run_id, wait_no);

CREATE VIEW automation.waiting WITH (security_barrier) AS
SELECT x.run_id, x.automation, x.step, x.waiting_for, x.since, x.deadline, x.refs, x.kind, x.key, x.entity, x.frozen,
       x.tenant
  FROM (
SELECT l.id AS run_id,
       a.name AS automation,
       w.value ->> 'step' AS step,
       w.value ->> 'for' AS waiting_for,
       timestamptz '2000-01-01 00:00:00+00' + (w.value ->> 'since')::bigint * interval '1 microsecond' AS since,
       timestamptz '2000-01-01 00:00:00+00' + (w.value ->> 'due')::bigint * interval '1 microsecond' AS deadline,
       (SELECT pg_catalog.array_agg(r.value ORDER BY r.ordinality)
          FROM pg_catalog.json_array_elements_text(w.value -> 'refs') WITH ORDINALITY AS r) AS refs,
       w.value ->> 'kind' AS kind,
       l.key,
       l.kind || ':' || l.entity_id AS entity,
       l.status = 'frozen' AS frozen,
       a.tenant,
       w.ordinality AS place
  FROM automation_internal.run AS l
  JOIN automation_internal.automation AS a ON a.id = l.automation_id
 CROSS JOIN LATERAL pg_catalog.json_array_elements(l.waits) WITH ORDINALITY AS w
 WHERE pg_catalog.pg_has_role(l.owner, 'USAGE')
 UNION ALL
SELECT h.run_id,
       a.name,
       h.trigger_id,
       'trigger ' || h.trigger_id || ' to be held',
       h.since,
       h.deadline,
       CASE WHEN h.event ->> 'entity_id' IS NOT NULL
            THEN ARRAY[(h.event ->> 'kind') || ':' || (h.event ->> 'entity_id')] END,
       'hold_for',
       h.key,
       (h.event ->> 'kind') || ':' || (h.event ->> 'entity_id'),
       false,
       a.tenant,
       0
  FROM automation_internal.dwell AS h
  JOIN automation_internal.automation AS a ON a.id = h.automation_id
 WHERE pg_catalog.pg_has_role(h.owner, 'USAGE')) AS x
 ORDER BY x.run_id DESC, x.place;
COMMENT ON VIEW automation.waiting IS 'What your runs wait for, and triggers that are held for a while before they start one (kind hold_for), newest first.';
COMMENT ON COLUMN automation.waiting.run_id IS 'The run, or the one that will be started.';
COMMENT ON COLUMN automation.waiting.automation IS 'Of which automation.';
COMMENT ON COLUMN automation.waiting.step IS 'The step at which it waits, or the trigger that is held.';
COMMENT ON COLUMN automation.waiting.waiting_for IS 'What for: a condition, an event, a signal, a run, or time.';
COMMENT ON COLUMN automation.waiting.since IS 'Since when.';
COMMENT ON COLUMN automation.waiting.deadline IS 'When it is over in any case; of what is held, when it fires.';
COMMENT ON COLUMN automation.waiting.refs IS 'The entities whose change is looked at; kind:* means any.';
COMMENT ON COLUMN automation.waiting.kind IS 'The kind of step; hold_for for a trigger.';
COMMENT ON COLUMN automation.waiting.key IS 'The run''s key; of a trigger, what it is held for.';
COMMENT ON COLUMN automation.waiting.entity IS 'kind:id of what started the run.';
COMMENT ON COLUMN automation.waiting.frozen IS 'The run goes on when its automation is active again.';
COMMENT ON COLUMN automation.waiting.tenant IS 'Tenant that the automation was defined for.';

-- One row per deadline. reason: d(ue: a delay, a try, a timeout), l(ook again: time alone may make a condition true),
-- a(rm: evaluate once more, after the commit that armed the wait), x (the run took too long; wait_no is 0), h (hold_for is
-- over; wait_no is 0), b (the next rows of the bulk job run_id).
-- Column order is known to src/store/timers.rs.
CREATE TABLE automation_internal.timer (
    due_at         timestamptz NOT NULL,
    run_id         bigint      NOT NULL,
    wait_no        integer     NOT NULL,
    owner          oid         NOT NULL,
    automation_id  integer     NOT NULL,
    version_id     integer     NOT NULL,
    reason         "char"      NOT NULL,
    CONSTRAINT timer_reason_check CHECK (reason IN ('d', 'l', 'a', 'x', 'h', 'b'))
);
COMMENT ON TABLE automation_internal.timer IS 'When something is to happen by itself.';
-- serves the conductor
CREATE INDEX timer_due_at_idx ON automation_internal.timer (due_at);
-- serves whoever ends a wait
CREATE INDEX timer_run_id_wait_no_idx ON automation_internal.timer (run_id, wait_no);

CREATE VIEW automation.timers WITH (security_barrier) AS
SELECT t.due_at,
       t.due_at - COALESCE(timestamptz '2000-01-01 00:00:00+00'
                + pg_catalog.substring(pg_catalog.current_setting('automation_engine.clock', true),
                                     '^(-\d{1,17}|\d{1,18})$')::bigint * interval '1 microsecond',
                pg_catalog.clock_timestamp()) AS due_in,
       a.name AS automation,
       t.run_id,
       CASE t.reason WHEN 'd' THEN 'due' WHEN 'l' THEN 'look again' WHEN 'a' THEN 'arm' WHEN 'x' THEN 'run timeout'
            WHEN 'h' THEN 'hold_for' END AS reason,
       a.tenant
  FROM automation_internal.timer AS t
  JOIN automation_internal.automation AS a ON a.id = t.automation_id
 WHERE pg_catalog.pg_has_role(t.owner, 'USAGE')
 UNION ALL
SELECT s.next_tick,
       s.next_tick - COALESCE(timestamptz '2000-01-01 00:00:00+00'
                + pg_catalog.substring(pg_catalog.current_setting('automation_engine.clock', true),
                                     '^(-\d{1,17}|\d{1,18})$')::bigint * interval '1 microsecond',
                pg_catalog.clock_timestamp()),
       a.name,
       NULL,
       'tick of ' || s.trigger_id,
       a.tenant
  FROM automation_internal.schedule AS s
  JOIN automation_internal.automation AS a ON a.id = s.automation_id
 WHERE s.next_tick IS NOT NULL
   AND a.status = 'active'
   AND pg_catalog.pg_has_role(a.owner, 'USAGE')
 ORDER BY due_at;
COMMENT ON VIEW automation.timers IS 'What happens by itself, soonest first.';
COMMENT ON COLUMN automation.timers.due_at IS 'When.';
COMMENT ON COLUMN automation.timers.due_in IS 'How soon that is.';
COMMENT ON COLUMN automation.timers.automation IS 'Of which automation.';
COMMENT ON COLUMN automation.timers.run_id IS 'The run it moves; none for a tick, which starts one.';
COMMENT ON COLUMN automation.timers.reason IS 'due (a delay, a retry or a timeout is over), look again (time may have made a condition true), arm, run timeout, hold_for (a trigger has been held long enough), tick of a trigger by the clock.';
COMMENT ON COLUMN automation.timers.tenant IS 'Tenant that the automation was defined for.';

CREATE TABLE automation_internal.signal (
    id          bigint      GENERATED ALWAYS AS IDENTITY CONSTRAINT signal_pkey PRIMARY KEY,
    name        text        NOT NULL,
    key         text,
    payload     json        NOT NULL,
    sender      oid         NOT NULL,
    created_at  timestamptz NOT NULL,
    tenant      text
);
COMMENT ON TABLE automation_internal.signal IS 'Signals that no run has taken yet.';
CREATE INDEX signal_name_id_idx ON automation_internal.signal (name, id);

CREATE TABLE automation_internal.cancel_request (
    run_id        bigint      NOT NULL CONSTRAINT cancel_request_pkey PRIMARY KEY,
    requested_by  name        NOT NULL,
    requested_at  timestamptz NOT NULL
);
COMMENT ON TABLE automation_internal.cancel_request IS 'Runs that were cancelled between start_run and their routing.';

CREATE TABLE automation_internal.dead_letter (
    id             bigint      GENERATED ALWAYS AS IDENTITY CONSTRAINT dead_letter_pkey PRIMARY KEY,
    at             timestamptz NOT NULL,
    run_id         bigint,
    event_id       bigint,
    automation_id  integer,
    owner          oid,
    reason         text        NOT NULL,
    error          json,
    -- a message that could not be delivered: its row of outbox
    delivery       json
);
COMMENT ON TABLE automation_internal.dead_letter IS 'Work the engine gave up on, kept for a person to look at.';

-- serves whoever sends a message again that was given up
CREATE INDEX dead_letter_delivery_id_idx ON automation_internal.dead_letter (((delivery ->> 'id')::bigint))
    WHERE delivery IS NOT NULL;

CREATE VIEW automation.dead_letters WITH (security_barrier) AS
SELECT d.id,
       d.at,
       a.name AS automation,
       d.run_id,
       d.event_id,
       d.reason,
       d.error ->> 'message' AS error,
       (d.delivery ->> 'id')::bigint AS delivery_id,
       a.tenant
  FROM automation_internal.dead_letter AS d
  LEFT JOIN automation_internal.automation AS a ON a.id = d.automation_id
 WHERE pg_catalog.pg_has_role(COALESCE(d.owner, 10), 'USAGE')
 ORDER BY d.id DESC;
COMMENT ON VIEW automation.dead_letters IS 'Work the engine gave up on, newest first; redrive(id) tries it again.';
COMMENT ON COLUMN automation.dead_letters.id IS 'For redrive(id).';
COMMENT ON COLUMN automation.dead_letters.at IS 'When.';
COMMENT ON COLUMN automation.dead_letters.automation IS 'Of which automation.';
COMMENT ON COLUMN automation.dead_letters.run_id IS 'The run.';
COMMENT ON COLUMN automation.dead_letters.event_id IS 'The event.';
COMMENT ON COLUMN automation.dead_letters.reason IS 'Why.';
COMMENT ON COLUMN automation.dead_letters.error IS 'Message of the last error.';
COMMENT ON COLUMN automation.dead_letters.delivery_id IS 'The message that could not be delivered, see deliveries.';
COMMENT ON COLUMN automation.dead_letters.tenant IS 'Tenant that the automation was defined for.';
SET LOCAL search_path = automation, pg_temp;
