SET LOCAL search_path = pg_catalog, pg_temp;
-- The engine about itself: counters, notes that belong to no single run, and its workers.

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

CREATE VIEW automation.stat_automations WITH (security_barrier) AS
SELECT a.name AS automation,
       COALESCE(s.matched, 0) AS matched,
       COALESCE(s.filtered, 0) AS filtered,
       COALESCE(s.filter_errors, 0) AS filter_errors,
       COALESCE(s.refused, 0) AS refused,
       COALESCE(s.held, 0) AS held,
       COALESCE(s.entered, 0) AS entered,
       COALESCE(s.completed, 0) AS completed,
       COALESCE(s.failed, 0) AS failed,
       COALESCE(s.cancelled, 0) AS cancelled,
       COALESCE(s.skipped, 0) AS skipped,
       COALESCE(s.entered - s.completed - s.failed - s.cancelled - s.skipped, 0) AS active,
       COALESCE(s.run_time_us, 0) * interval '1 microsecond' AS run_time,
       s.at AS last_run_at,
       a.tenant
  FROM automation_internal.automation AS a
  LEFT JOIN (SELECT t.automation_id,
                    pg_catalog.sum(t.matched)::bigint AS matched,
                    pg_catalog.sum(t.filtered)::bigint AS filtered,
                    pg_catalog.sum(t.filter_errors)::bigint AS filter_errors,
                    pg_catalog.sum(t.refused)::bigint AS refused,
                    pg_catalog.sum(t.held)::bigint AS held,
                    pg_catalog.sum(t.entered)::bigint AS entered,
                    pg_catalog.sum(t.completed)::bigint AS completed,
                    pg_catalog.sum(t.failed)::bigint AS failed,
                    pg_catalog.sum(t.cancelled)::bigint AS cancelled,
                    pg_catalog.sum(t.skipped)::bigint AS skipped,
                    pg_catalog.sum(t.run_time_us)::bigint AS run_time_us,
                    pg_catalog.max(t.at) FILTER (WHERE t.entered > 0) AS at
               FROM automation_internal.stat AS t
              GROUP BY t.automation_id) AS s ON s.automation_id = a.id
 WHERE a.status <> 'dropped'
   AND pg_catalog.pg_has_role(a.owner, 'USAGE')
 ORDER BY a.name, a.tenant NULLS FIRST;
COMMENT ON VIEW automation.stat_automations IS 'Counters since each automation was defined.';
COMMENT ON COLUMN automation.stat_automations.automation IS 'Which automation.';
COMMENT ON COLUMN automation.stat_automations.matched IS 'Events that matched a trigger and its filter.';
COMMENT ON COLUMN automation.stat_automations.filtered IS 'Events on a trigger''s topic that its filter refused.';
COMMENT ON COLUMN automation.stat_automations.filter_errors IS 'Events whose filter could not be evaluated; they do not fire.';
COMMENT ON COLUMN automation.stat_automations.refused IS 'Events refused because the chain of causes was too deep.';
COMMENT ON COLUMN automation.stat_automations.held IS 'How often a trigger with hold_for began to be held.';
COMMENT ON COLUMN automation.stat_automations.entered IS 'Runs begun.';
COMMENT ON COLUMN automation.stat_automations.completed IS 'Runs completed.';
COMMENT ON COLUMN automation.stat_automations.failed IS 'Runs failed.';
COMMENT ON COLUMN automation.stat_automations.cancelled IS 'Runs cancelled.';
COMMENT ON COLUMN automation.stat_automations.skipped IS 'Runs whose condition said no, or whose automation was not active any more.';
COMMENT ON COLUMN automation.stat_automations.active IS 'entered - completed - failed - cancelled - skipped.';
COMMENT ON COLUMN automation.stat_automations.run_time IS 'Time spent in its runs.';
COMMENT ON COLUMN automation.stat_automations.last_run_at IS 'When a run last ended.';
COMMENT ON COLUMN automation.stat_automations.tenant IS 'Tenant that the automation was defined for.';

-- Counters beside those of automation_internal.stat, kept in the same way: one small row per batch and thing counted, folded
-- together by the janitor. Column order is known to src/store/step_stats.rs.
CREATE TABLE automation_internal.stat_step (
    automation_id  integer     NOT NULL,
    step           text        NOT NULL,
    completed      bigint      NOT NULL,
    failed         bigint      NOT NULL,
    skipped        bigint      NOT NULL,
    retried        bigint      NOT NULL,
    time_us        bigint      NOT NULL,
    at             timestamptz NOT NULL
);
COMMENT ON TABLE automation_internal.stat_step IS 'Counters per step, insert-only between foldings. failed counts tries; retried those that were not the first.';

CREATE VIEW automation.stat_steps WITH (security_barrier) AS
SELECT a.name AS automation,
       s.step,
       s.completed,
       s.failed - s.retried AS failed,
       s.skipped,
       s.retried,
       s.time_us * interval '1 microsecond' AS run_time,
       s.at AS last_at,
       a.tenant
  FROM (SELECT t.automation_id,
               t.step,
               pg_catalog.sum(t.completed)::bigint AS completed,
               pg_catalog.sum(t.failed)::bigint AS failed,
               pg_catalog.sum(t.skipped)::bigint AS skipped,
               pg_catalog.sum(t.retried)::bigint AS retried,
               pg_catalog.sum(t.time_us)::bigint AS time_us,
               pg_catalog.max(t.at) AS at
          FROM automation_internal.stat_step AS t
         GROUP BY t.automation_id, t.step) AS s
  JOIN automation_internal.automation AS a ON a.id = s.automation_id
  JOIN automation_internal.automation_version AS v ON v.id = a.version_id
  LEFT JOIN LATERAL (SELECT p.ordinality
                       FROM pg_catalog.jsonb_array_elements(v.document -> 'steps') WITH ORDINALITY AS p
                      WHERE p.value ->> 'id' = s.step
                      LIMIT 1) AS place ON true
 WHERE a.status <> 'dropped'
   AND pg_catalog.pg_has_role(a.owner, 'USAGE')
 ORDER BY a.name, a.tenant NULLS FIRST, place.ordinality, s.step;
COMMENT ON VIEW automation.stat_steps IS 'How far runs come: what became of each step since its automation was defined.';
COMMENT ON COLUMN automation.stat_steps.automation IS 'Which automation.';
COMMENT ON COLUMN automation.stat_steps.step IS 'Id of the step.';
COMMENT ON COLUMN automation.stat_steps.completed IS 'How often it was done.';
COMMENT ON COLUMN automation.stat_steps.failed IS 'How often it failed for good, or waits for another try.';
COMMENT ON COLUMN automation.stat_steps.skipped IS 'How often it was passed over: by a branch, by its condition, by a person.';
COMMENT ON COLUMN automation.stat_steps.retried IS 'How often it was tried again.';
COMMENT ON COLUMN automation.stat_steps.run_time IS 'Time from the beginning of each to its end, waiting included.';
COMMENT ON COLUMN automation.stat_steps.last_at IS 'When it was last counted.';
COMMENT ON COLUMN automation.stat_steps.tenant IS 'Tenant that the automation was defined for.';

-- Only runs of a tenant are counted here.
CREATE TABLE automation_internal.stat_tenant (
    automation_id  integer     NOT NULL,
    tenant         text        NOT NULL,
    entered        bigint      NOT NULL,
    completed      bigint      NOT NULL,
    failed         bigint      NOT NULL,
    cancelled      bigint      NOT NULL,
    skipped        bigint      NOT NULL,
    run_time_us    bigint      NOT NULL,
    at             timestamptz NOT NULL
);
COMMENT ON TABLE automation_internal.stat_tenant IS 'Counters per tenant and automation, insert-only between foldings.';

CREATE VIEW automation.stat_tenants WITH (security_barrier) AS
SELECT s.tenant,
       a.name AS automation,
       s.entered,
       s.completed,
       s.failed,
       s.cancelled,
       s.skipped,
       s.entered - s.completed - s.failed - s.cancelled - s.skipped AS active,
       s.run_time_us * interval '1 microsecond' AS run_time,
       s.at AS last_at
  FROM (SELECT t.tenant,
               t.automation_id,
               pg_catalog.sum(t.entered)::bigint AS entered,
               pg_catalog.sum(t.completed)::bigint AS completed,
               pg_catalog.sum(t.failed)::bigint AS failed,
               pg_catalog.sum(t.cancelled)::bigint AS cancelled,
               pg_catalog.sum(t.skipped)::bigint AS skipped,
               pg_catalog.sum(t.run_time_us)::bigint AS run_time_us,
               pg_catalog.max(t.at) AS at
          FROM automation_internal.stat_tenant AS t
         GROUP BY t.tenant, t.automation_id) AS s
  JOIN automation_internal.automation AS a ON a.id = s.automation_id
 WHERE a.status <> 'dropped'
   AND pg_catalog.pg_has_role(a.owner, 'USAGE')
 ORDER BY s.tenant, a.name;
COMMENT ON VIEW automation.stat_tenants IS 'Counters per tenant and automation; runs without a tenant are not in it.';
COMMENT ON COLUMN automation.stat_tenants.tenant IS 'Which tenant.';
COMMENT ON COLUMN automation.stat_tenants.automation IS 'Which automation.';
COMMENT ON COLUMN automation.stat_tenants.entered IS 'Runs begun.';
COMMENT ON COLUMN automation.stat_tenants.completed IS 'Runs completed.';
COMMENT ON COLUMN automation.stat_tenants.failed IS 'Runs failed.';
COMMENT ON COLUMN automation.stat_tenants.cancelled IS 'Runs cancelled.';
COMMENT ON COLUMN automation.stat_tenants.skipped IS 'Runs that did not get to their steps.';
COMMENT ON COLUMN automation.stat_tenants.active IS 'entered - completed - failed - cancelled - skipped.';
COMMENT ON COLUMN automation.stat_tenants.run_time IS 'Time spent in its runs.';
COMMENT ON COLUMN automation.stat_tenants.last_at IS 'When a run was last counted.';

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

CREATE VIEW automation.log WITH (security_barrier) AS
SELECT l.at, l.level, l.code, a.name AS automation, l.run_id, l.event_id, l.message, l.detail, l.times, a.tenant
  FROM automation_internal.log AS l
  LEFT JOIN automation_internal.automation AS a ON a.id = l.automation_id
 WHERE pg_catalog.pg_has_role(COALESCE(l.owner, 10), 'USAGE')
 ORDER BY l.id DESC;
COMMENT ON VIEW automation.log IS 'What the engine noticed, newest first.';
COMMENT ON COLUMN automation.log.at IS 'When.';
COMMENT ON COLUMN automation.log.level IS 'info, warning or error.';
COMMENT ON COLUMN automation.log.code IS 'A short stable name for this kind of message.';
COMMENT ON COLUMN automation.log.automation IS 'The automation concerned.';
COMMENT ON COLUMN automation.log.run_id IS 'The run concerned.';
COMMENT ON COLUMN automation.log.event_id IS 'The event concerned.';
COMMENT ON COLUMN automation.log.message IS 'What happened.';
COMMENT ON COLUMN automation.log.detail IS 'The facts.';
COMMENT ON COLUMN automation.log.times IS 'How often it happened: the same entry is counted for a minute before it is written again.';
COMMENT ON COLUMN automation.log.tenant IS 'Tenant that the automation was defined for.';

CREATE FUNCTION automation_internal.worker_list()
RETURNS TABLE (worker text, pid integer, state text, owner text, runs bigint, failed_runs bigint, batches bigint,
               events bigint, dispatches bigint, errors bigint, started_at timestamptz)
LANGUAGE c AS 'MODULE_PATHNAME', 'worker_list_wrapper';
COMMENT ON FUNCTION automation_internal.worker_list() IS 'What automation.stat_workers shows.';

CREATE VIEW automation.stat_workers WITH (security_barrier) AS
SELECT w.worker, w.pid, w.state, w.owner, w.runs, w.failed_runs, w.batches, w.events, w.dispatches, w.errors,
       w.started_at
  FROM automation_internal.worker_list() AS w;
COMMENT ON VIEW automation.stat_workers IS 'The processes that work for this database.';
COMMENT ON COLUMN automation.stat_workers.worker IS 'conductor, executor or courier.';
COMMENT ON COLUMN automation.stat_workers.pid IS 'Its process id, see pg_stat_activity.';
COMMENT ON COLUMN automation.stat_workers.state IS 'running, idle, busy, starting or not running.';
COMMENT ON COLUMN automation.stat_workers.owner IS 'The role an executor works as; NULL if you may neither act for that role nor see the statistics of all roles.';
COMMENT ON COLUMN automation.stat_workers.runs IS 'Runs since it started.';
COMMENT ON COLUMN automation.stat_workers.failed_runs IS 'How many of them failed.';
COMMENT ON COLUMN automation.stat_workers.batches IS 'Transactions with work in them.';
COMMENT ON COLUMN automation.stat_workers.events IS 'Events routed.';
COMMENT ON COLUMN automation.stat_workers.dispatches IS 'Dispatches written.';
COMMENT ON COLUMN automation.stat_workers.errors IS 'Turns that failed; of a courier, attempts that did not deliver.';
COMMENT ON COLUMN automation.stat_workers.started_at IS 'When it started.';
SET LOCAL search_path = automation, pg_temp;
