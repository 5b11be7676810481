SET LOCAL search_path = pg_catalog, pg_temp;
-- What the gates between an event and a run remember. Whoever reads and writes here about one key holds that key's lock
-- (src/pg/key_lock.rs) until its transaction ends.

-- One row per occurrence that counts for a trigger's window. trigger: a hash of the trigger as it is defined, so that an
-- edited one counts anew.
CREATE TABLE automation_internal.window_event (
    automation_id  integer     NOT NULL,
    trigger        bigint      NOT NULL,
    key            text        NOT NULL,
    at             timestamptz NOT NULL,
    event_id       bigint      NOT NULL,
    keep_until     timestamptz NOT NULL,
    -- serves the count; the event is part of it, so that none counts twice
    CONSTRAINT window_event_pkey PRIMARY KEY (automation_id, trigger, key, at, event_id)
);
COMMENT ON TABLE automation_internal.window_event IS 'Occurrences that count for the window of a trigger; pruned when they are older than the window.';

CREATE TABLE automation_internal.execution_claim (
    automation_id  integer     NOT NULL,
    key            text        NOT NULL,
    event_id       bigint      NOT NULL,
    expires_at     timestamptz NOT NULL,
    CONSTRAINT execution_claim_pkey PRIMARY KEY (automation_id, key)
);
COMMENT ON TABLE automation_internal.execution_claim IS 'Events that have started a run of an automation with dedup, by their key; pruned when they have expired.';

-- Only executions that a limit counts are here: those of automations with max_executions, and those that go back to the
-- automation itself.
-- tenant: of an automation that is for all tenants, the tenant of the run; otherwise empty.
CREATE TABLE automation_internal.execution (
    automation_id  integer     NOT NULL,
    tenant         text        NOT NULL,
    at             timestamptz NOT NULL,
    entity         text,
    own            boolean     NOT NULL,
    keep_until     timestamptz NOT NULL
);
COMMENT ON TABLE automation_internal.execution IS 'Executions that count towards the limits of an automation; pruned when no limit looks back so far.';
CREATE INDEX execution_automation_id_tenant_at_idx ON automation_internal.execution (automation_id, tenant, at);

-- Nearly always empty: a row appears with a failed run and goes with the next one that completes.
-- tenant: as in execution.
CREATE TABLE automation_internal.breaker (
    automation_id  integer NOT NULL,
    tenant         text    NOT NULL,
    failures       integer NOT NULL,
    CONSTRAINT breaker_pkey PRIMARY KEY (automation_id, tenant)
);
COMMENT ON TABLE automation_internal.breaker IS 'Automations whose last runs failed, and how many in a row.';

-- Nearly always empty. Rows are added and removed by transactions that hold a lock on the automation's row, and that add a
-- row to definition_change, so that the router looks again.
CREATE TABLE automation_internal.tenant_pause (
    automation_id  integer     NOT NULL REFERENCES automation_internal.automation ON DELETE CASCADE,
    tenant         text        NOT NULL,
    since          timestamptz NOT NULL,
    details        jsonb       NOT NULL,
    CONSTRAINT tenant_pause_pkey PRIMARY KEY (automation_id, tenant)
);
COMMENT ON TABLE automation_internal.tenant_pause IS 'Tenants for which an automation that is for all of them is paused.';

CREATE VIEW automation.paused_tenants WITH (security_barrier) AS
SELECT a.name AS automation,
       p.tenant,
       p.details ->> 'disabled_by' AS disabled_by,
       COALESCE(p.details ->> 'reason', 'user') AS reason,
       p.since,
       p.details
  FROM automation_internal.tenant_pause AS p
  JOIN automation_internal.automation AS a ON a.id = p.automation_id
 WHERE a.status <> 'dropped'
   AND pg_catalog.pg_has_role(a.owner, 'USAGE')
 ORDER BY a.name, p.tenant;
COMMENT ON VIEW automation.paused_tenants IS 'Tenants for which an automation without a tenant of its own is paused, while it works for the others.';
COMMENT ON COLUMN automation.paused_tenants.automation IS 'Which automation; resume(automation, tenant => tenant) starts it again.';
COMMENT ON COLUMN automation.paused_tenants.tenant IS 'Whose events start no run of it.';
COMMENT ON COLUMN automation.paused_tenants.disabled_by IS 'Who paused it: a person (user) or the engine (system).';
COMMENT ON COLUMN automation.paused_tenants.reason IS 'hot_flow (too many executions), failure_breaker (too many failed runs in a row) or user.';
COMMENT ON COLUMN automation.paused_tenants.since IS 'Since when.';
COMMENT ON COLUMN automation.paused_tenants.details IS 'Why: as disable_details of automations.';

-- Counters as in stat: rows are added, and folded together by the janitor. Column order is known to src/store/gates.rs.
CREATE TABLE automation_internal.gate_refusal (
    automation_id  integer     NOT NULL,
    trigger_no     smallint    NOT NULL,
    reason         text        NOT NULL,
    count          bigint      NOT NULL,
    at             timestamptz NOT NULL
);
COMMENT ON TABLE automation_internal.gate_refusal IS 'How often a gate said no, by its reason, insert-only between foldings.';

CREATE VIEW automation.stat_gates WITH (security_barrier) AS
SELECT a.name AS automation,
       CASE WHEN g.trigger_no < 0 THEN 'manual'
            ELSE COALESCE(v.document -> 'triggers' -> g.trigger_no::integer ->> 'id', g.trigger_no::text) END AS trigger,
       g.reason,
       pg_catalog.sum(g.count)::bigint AS count,
       pg_catalog.max(g.at) AS last_at,
       a.tenant
  FROM automation_internal.gate_refusal AS g
  JOIN automation_internal.automation AS a ON a.id = g.automation_id
  JOIN automation_internal.automation_version AS v ON v.id = a.version_id
 WHERE a.status <> 'dropped'
   AND pg_catalog.pg_has_role(a.owner, 'USAGE')
 GROUP BY a.id, 1, 2, 3
 ORDER BY 1, a.tenant NULLS FIRST, 2, 3;
COMMENT ON VIEW automation.stat_gates IS 'Why events that matched a trigger did not start a run, and how often.';
COMMENT ON COLUMN automation.stat_gates.automation IS 'Which automation.';
COMMENT ON COLUMN automation.stat_gates.trigger IS 'Id of the trigger, or manual.';
COMMENT ON COLUMN automation.stat_gates.reason IS 'no_rights (the owner may not read the table), tenant_paused (see paused_tenants), window_not_full, window_fired_before, duplicate, hot_flow, already_running, max_runs and so on.';
COMMENT ON COLUMN automation.stat_gates.count IS 'How often, since the automation was defined.';
COMMENT ON COLUMN automation.stat_gates.last_at IS 'When last.';
COMMENT ON COLUMN automation.stat_gates.tenant IS 'Tenant that the automation was defined for.';
SET LOCAL search_path = automation, pg_temp;
