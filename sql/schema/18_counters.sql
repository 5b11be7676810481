SET LOCAL search_path = pg_catalog, pg_temp;
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
SET LOCAL search_path = automation, pg_temp;
