SET LOCAL search_path = pg_catalog, pg_temp;
-- Automations: their definitions, and the record of changes to them.

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

CREATE VIEW automation.automations WITH (security_barrier) AS
SELECT a.name,
       a.status,
       a.version,
       v.document ->> 'description' AS description,
       (SELECT pg_catalog.string_agg(t.value ->> 'id', ', ' ORDER BY t.ordinality)
          FROM pg_catalog.jsonb_array_elements(v.document -> 'triggers') WITH ORDINALITY AS t) AS triggers,
       pg_catalog.jsonb_array_length(v.document -> 'steps') AS steps,
       COALESCE((SELECT r.rolname FROM pg_catalog.pg_roles AS r WHERE r.oid = a.owner), a.owner_name) AS owner,
       a.tenant,
       a.disabled_by,
       a.disable_details,
       a.created_at,
       a.updated_at,
       a.activated_at,
       a.paused_at
  FROM automation_internal.automation AS a
  JOIN automation_internal.automation_version AS v ON v.id = a.version_id
 WHERE a.status <> 'dropped'
   AND pg_catalog.pg_has_role(a.owner, 'USAGE')
 ORDER BY a.name, a.tenant NULLS FIRST;
COMMENT ON VIEW automation.automations IS 'Your automations, one row each.';
COMMENT ON COLUMN automation.automations.name IS 'The name it was defined with.';
COMMENT ON COLUMN automation.automations.status IS 'draft, active or paused. Only an active one starts runs.';
COMMENT ON COLUMN automation.automations.version IS 'Counts the definitions; a run keeps the version it started with.';
COMMENT ON COLUMN automation.automations.description IS 'What its author says it is for.';
COMMENT ON COLUMN automation.automations.triggers IS 'Ids of its triggers.';
COMMENT ON COLUMN automation.automations.steps IS 'How many steps it has.';
COMMENT ON COLUMN automation.automations.owner IS 'The role whose rights its steps have; its last known name if it does not exist any more.';
COMMENT ON COLUMN automation.automations.tenant IS 'The tenant whose events it sees, NULL for all.';
COMMENT ON COLUMN automation.automations.disabled_by IS 'Who paused it: a person (user) or the engine (system).';
COMMENT ON COLUMN automation.automations.disable_details IS 'When and why it was paused.';
COMMENT ON COLUMN automation.automations.created_at IS 'When it was first defined.';
COMMENT ON COLUMN automation.automations.updated_at IS 'When its definition or status last changed.';
COMMENT ON COLUMN automation.automations.activated_at IS 'When it was first activated.';
COMMENT ON COLUMN automation.automations.paused_at IS 'When it was paused, if it is.';

-- Every committed change of definitions adds a row, so two definers never wait for each other; a reader compares
-- count and sum to know whether its cache is current in its own snapshot. When many have gathered, the older ones are
-- folded into one row that stands for so many changes with that sum of ids: no reader notices.
CREATE TABLE automation_internal.definition_change (
    id       bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT definition_change_pkey PRIMARY KEY,
    changes  bigint NOT NULL DEFAULT 1,
    total    bigint
);

-- Who is started by the engine's own events, for the current version of each automation that is. Executors look here once
-- per batch: as long as it is empty, and nobody waits for such an event, runs tell nothing.
CREATE TABLE automation_internal.engine_listener (
    automation_id  integer NOT NULL REFERENCES automation_internal.automation ON DELETE CASCADE,
    version_id     integer NOT NULL,
    pattern        text    NOT NULL,
    CONSTRAINT engine_listener_pkey PRIMARY KEY (automation_id, pattern)
);
COMMENT ON TABLE automation_internal.engine_listener IS 'Triggers on events of the engine itself.';

-- What an automation writes, as its statements say when it is defined: for the warning that automations can start each other
-- in a circle. One row for each automation whose steps make anything; nothing here decides what runs.
CREATE TABLE automation_internal.automation_effect (
    automation_id  integer NOT NULL CONSTRAINT automation_effect_pkey PRIMARY KEY
                   REFERENCES automation_internal.automation ON DELETE CASCADE,
    node           jsonb   NOT NULL,
    writes         jsonb   NOT NULL
);
COMMENT ON TABLE automation_internal.automation_effect IS 'What starts an automation and what its steps make, to find loops. writes: relation, verb and columns.';

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

CREATE VIEW automation.audit_log WITH (security_barrier) AS
SELECT u.at, u.role, u.action, u.automation, u.details, u.details ->> 'tenant' AS tenant
  FROM automation_internal.audit AS u
 WHERE pg_catalog.pg_has_role(u.role_id, 'USAGE')
    OR pg_catalog.pg_has_role(u.owner, 'USAGE')
 ORDER BY u.id DESC;
COMMENT ON VIEW automation.audit_log IS 'What your roles changed, and what others changed about things of your roles, newest first.';
COMMENT ON COLUMN automation.audit_log.at IS 'When.';
COMMENT ON COLUMN automation.audit_log.role IS 'Who.';
COMMENT ON COLUMN automation.audit_log.action IS 'What, for example automation.activated.';
COMMENT ON COLUMN automation.audit_log.automation IS 'Which automation.';
COMMENT ON COLUMN automation.audit_log.details IS 'Particulars, for example from, to and no_op.';
COMMENT ON COLUMN automation.audit_log.tenant IS 'Tenant that the automation was defined for, or whose runs of it the change concerns.';
SET LOCAL search_path = automation, pg_temp;
