SET LOCAL search_path = pg_catalog, pg_temp;
-- Tables of the engine: singular nouns, written by the extension alone. Everything on the hot path (event,
-- run_history, stat, log) is insert-only; dispatch is the one queue, inserted by the conductor and deleted by executors.

-- Gives out blocks of ids, see src/store/event_ids.rs.
CREATE SEQUENCE automation_internal.event_id_seq INCREMENT 128 CACHE 1;
CREATE SEQUENCE automation_internal.run_id_seq CACHE 1;

CREATE TABLE automation_internal.entity_kind (
    kind           text        NOT NULL CONSTRAINT entity_kind_pkey PRIMARY KEY,
    relation       oid         CONSTRAINT entity_kind_relation_key UNIQUE,
    id_columns     text[]      NOT NULL DEFAULT '{}',
    columns        text[],
    ignored        text[]      NOT NULL DEFAULT '{}',
    tenant_column  text,
    -- the role that watched the table, or first gave an entity a state: the kind is its own
    created_by     oid         NOT NULL,
    -- since when its changes are recorded as they are now
    created_at     timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    -- the owner of the table when it was watched
    table_owner    oid,
    -- the name that the table had when it was watched; another table may have it now
    watched_as     text
);
COMMENT ON TABLE automation_internal.entity_kind IS 'What can change: a watched table (relation) or a kind whose state lives in entity_state.';

-- A name that is free again still belongs to the roles that used it: automations of others may listen to it.
CREATE TABLE automation_internal.former_kind (
    kind         text NOT NULL CONSTRAINT former_kind_pkey PRIMARY KEY,
    created_by   oid  NOT NULL,
    table_owner  oid
);
COMMENT ON TABLE automation_internal.former_kind IS 'Kinds of tables that were dropped or are not watched any more, and whose they were.';

-- After DETACH PARTITION the catalog does not tell that a table was captured as a partition of a watched one.
CREATE TABLE automation_internal.watched_partition (
    leaf      oid NOT NULL CONSTRAINT watched_partition_pkey PRIMARY KEY,
    relation  oid NOT NULL
);
COMMENT ON TABLE automation_internal.watched_partition IS 'Leaf partitions of watched tables (relation), as housekeeping has seen them; status() names those that were detached.';

CREATE TABLE automation_internal.entity_state (
    kind        text        NOT NULL REFERENCES automation_internal.entity_kind ON DELETE CASCADE,
    entity_id   text        NOT NULL,
    state       jsonb       NOT NULL,
    changed_at  timestamptz NOT NULL,
    CONSTRAINT entity_state_pkey PRIMARY KEY (kind, entity_id)
);
COMMENT ON TABLE automation_internal.entity_state IS 'Current state of entities that have no table of their own.';

-- Since when fields are what they are, for conditions with "for". Both tables are written by whoever holds the router's
-- cursor: a pair of kind and field is followed while an active automation asks about it, from the moment since on.
CREATE TABLE automation_internal.tracked_field (
    kind   text        NOT NULL,
    field  text        NOT NULL,
    since  timestamptz NOT NULL,
    CONSTRAINT tracked_field_pkey PRIMARY KEY (kind, field)
);
COMMENT ON TABLE automation_internal.tracked_field IS 'Fields whose changes are followed, and since when.';

CREATE TABLE automation_internal.field_change (
    kind        text        NOT NULL,
    field       text        NOT NULL,
    entity_id   text        NOT NULL,
    changed_at  timestamptz NOT NULL,
    CONSTRAINT field_change_pkey PRIMARY KEY (kind, field, entity_id)
) WITH (fillfactor = 90);
COMMENT ON TABLE automation_internal.field_change IS 'Last change of each followed field since it is followed; kept for 31 days.';

-- One log for entity changes and custom events. Column order and types are known to src/store/events.rs and
-- src/pg/append.rs, which form the tuples themselves, and to src/pg/log_scan.rs, which reads them: change all together.
-- Events are inserted in groups, all of one transaction and subtransaction. The first of a group says in group_span how
-- many ids it reaches over (ids of others may lie in between), the rest have 0; so has a single event of a transaction
-- that ends with its statement, see src/store/event_ids.rs.
CREATE TABLE automation_internal.event (
    id           bigint      NOT NULL,
    xid          xid8        NOT NULL,
    occurred_at  timestamptz NOT NULL,
    group_span   integer     NOT NULL,
    cause_run    bigint,
    relation     oid,
    role         oid         NOT NULL,
    depth        smallint    NOT NULL,
    op           "char"      NOT NULL,
    truncated    boolean     NOT NULL,
    kind         text,
    entity_id    text,
    topic        text,
    tenant       text,
    actor        text,
    dedup_key    text,
    changed      text[],
    prev         json,
    next         json,
    payload      json,
    CONSTRAINT event_op_check CHECK (op IN ('c', 'u', 'd', 't', 'e', 's', 'g', 'r', 'm'))
) PARTITION BY RANGE (occurred_at);
COMMENT ON TABLE automation_internal.event IS 'Append-only log of everything that happened: op c(reate), u(pdate), d(elete), t(runcate), e(vent), s(tart), g (signal), r(un ended), m(ove a run). For an update, prev holds only the fields that changed; changed names them where prev may not.';
-- serves the router (a range of ids) and the executors (one event by id)
CREATE INDEX event_id_idx ON automation_internal.event (id);
-- serves the router: groups of transactions that were still open at the previous snapshot
CREATE INDEX event_xid_id_idx ON automation_internal.event (xid, id) WHERE group_span > 0;
CREATE TABLE automation_internal.event_default PARTITION OF automation_internal.event DEFAULT;

-- Dedup keys of emit(): a second emission with the same key is refused by the index, not by a look-up. Each role has keys of
-- its own, so that none can take another's.
CREATE TABLE automation_internal.event_dedup (
    role        oid         NOT NULL,
    tenant      text        NOT NULL,
    topic       text        NOT NULL,
    dedup_key   text        NOT NULL,
    event_id    bigint      NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT pg_catalog.now(),
    CONSTRAINT event_dedup_pkey PRIMARY KEY (role, tenant, topic, dedup_key)
);
CREATE INDEX event_dedup_created_at_idx ON automation_internal.event_dedup (created_at);

-- The router's place in the log, after PgQ: everything visible in to_snapshot but not in from_snapshot is the current
-- batch, routed in id order up to position. from_floor: a transaction that began after from_snapshot has only ids
-- above it. to_ceiling: no event visible in to_snapshot is above it. to_at: what was committed by then is visible in
-- to_snapshot. One row, taken FOR UPDATE SKIP LOCKED.
CREATE TABLE automation_internal.router_cursor (
    singleton      boolean     NOT NULL DEFAULT true CONSTRAINT router_cursor_pkey PRIMARY KEY,
    from_snapshot  pg_snapshot NOT NULL,
    from_floor     bigint      NOT NULL,
    to_snapshot    pg_snapshot,
    to_floor       bigint,
    to_ceiling     bigint,
    to_at          timestamptz,
    position       bigint      NOT NULL DEFAULT 0,
    CONSTRAINT router_cursor_singleton_check CHECK (singleton)
) WITH (fillfactor = 10);
COMMENT ON TABLE automation_internal.router_cursor IS 'How far the log has been routed (snapshot diff).';
INSERT INTO automation_internal.router_cursor (from_snapshot, from_floor) VALUES (pg_catalog.pg_current_snapshot(), 0);

-- What drain() routed inside a transaction that was still open: the router must not route it again after the commit.
CREATE TABLE automation_internal.routed_ahead (
    xid    xid8   NOT NULL,
    up_to  bigint NOT NULL
);

-- Definitions ------------------------------------------------------------------------------------------------------

CREATE TABLE automation_internal.automation (
    id               integer     GENERATED ALWAYS AS IDENTITY CONSTRAINT automation_pkey PRIMARY KEY,
    name             text        NOT NULL,
    owner            oid         NOT NULL,
    owner_name       name        NOT NULL,
    status           text        NOT NULL,
    version          integer     NOT NULL,
    version_id       integer     NOT NULL,
    tenant           text,
    disabled_by      text,
    disable_details  jsonb,
    created_at       timestamptz NOT NULL,
    updated_at       timestamptz NOT NULL,
    activated_at     timestamptz,
    paused_at        timestamptz,
    finish_runs      boolean     NOT NULL DEFAULT false,
    -- since when without a break; activated_at is when it first was
    active_since     timestamptz,
    CONSTRAINT automation_status_check CHECK (status IN ('draft', 'active', 'paused', 'dropped'))
);
-- Each tenant has names of its own, and so have the automations without a tenant. A dropped automation keeps its row, so
-- that its history keeps its name; the name itself is free again.
CREATE UNIQUE INDEX automation_name_tenant_key ON automation_internal.automation (name, tenant) NULLS NOT DISTINCT
 WHERE status <> 'dropped';
COMMENT ON TABLE automation_internal.automation IS 'One row per automation; what it does is in automation_version.';

CREATE TABLE automation_internal.automation_version (
    id             integer     GENERATED ALWAYS AS IDENTITY CONSTRAINT automation_version_pkey PRIMARY KEY,
    automation_id  integer     NOT NULL REFERENCES automation_internal.automation ON DELETE CASCADE,
    version        integer     NOT NULL,
    document       jsonb       NOT NULL,
    search_path    text        NOT NULL,
    created_by     oid         NOT NULL,
    created_at     timestamptz NOT NULL,
    CONSTRAINT automation_version_automation_id_version_key UNIQUE (automation_id, version)
);
COMMENT ON TABLE automation_internal.automation_version IS 'Immutable definitions. A run keeps the version it started with.';

-- Every committed change of definitions adds a row, so two definers never wait for each other; a reader compares
-- count and sum to know whether its cache is current in its own snapshot. When many have gathered, the older ones are
-- folded into one row that stands for so many changes with that sum of ids: no reader notices.
CREATE TABLE automation_internal.definition_change (
    id       bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT definition_change_pkey PRIMARY KEY,
    changes  bigint NOT NULL DEFAULT 1,
    total    bigint
);

CREATE TABLE automation_internal.audit (
    id          bigint      GENERATED ALWAYS AS IDENTITY CONSTRAINT audit_pkey PRIMARY KEY,
    at          timestamptz NOT NULL,
    role_id     oid         NOT NULL,
    role        name        NOT NULL,
    action      text        NOT NULL,
    automation  text,
    details     jsonb       NOT NULL DEFAULT '{}',
    -- the role whose thing was changed, at the time; NULL if the act concerned nothing of another role
    owner       oid
);
COMMENT ON TABLE automation_internal.audit IS 'Who changed what about automations.';

-- Work -------------------------------------------------------------------------------------------------------------

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

-- Counters: executors and the router add one small row per batch and automation; the janitor folds them together.
-- Column order is known to src/store/stats.rs.
CREATE TABLE automation_internal.stat (
    automation_id  integer     NOT NULL,
    trigger_no     smallint    NOT NULL,
    matched        bigint      NOT NULL,
    filtered       bigint      NOT NULL,
    filter_errors  bigint      NOT NULL,
    refused        bigint      NOT NULL,
    held           bigint      NOT NULL,
    entered        bigint      NOT NULL,
    completed      bigint      NOT NULL,
    failed         bigint      NOT NULL,
    cancelled      bigint      NOT NULL,
    skipped        bigint      NOT NULL,
    run_time_us    bigint      NOT NULL,
    at             timestamptz NOT NULL
);
COMMENT ON TABLE automation_internal.stat IS 'Counters per automation and trigger, insert-only between foldings.';

CREATE TABLE automation_internal.log (
    id             bigint      GENERATED ALWAYS AS IDENTITY CONSTRAINT log_pkey PRIMARY KEY,
    at             timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    level          text        NOT NULL,
    code           text        NOT NULL,
    automation_id  integer,
    owner          oid,
    run_id         bigint,
    event_id       bigint,
    message        text        NOT NULL,
    detail         text,
    times          bigint      NOT NULL DEFAULT 1,
    CONSTRAINT log_level_check CHECK (level IN ('info', 'warning', 'error'))
);
CREATE INDEX log_owner_idx ON automation_internal.log (owner, id);
COMMENT ON TABLE automation_internal.log IS 'What the engine has to say that belongs to no single run.';

CREATE TABLE automation_internal.cancel_request (
    run_id        bigint      NOT NULL CONSTRAINT cancel_request_pkey PRIMARY KEY,
    requested_by  name        NOT NULL,
    requested_at  timestamptz NOT NULL
);
COMMENT ON TABLE automation_internal.cancel_request IS 'Runs that were cancelled between start_run and their routing.';
SET LOCAL search_path = automation, pg_temp;
