SET LOCAL search_path = pg_catalog, pg_temp;
-- Kinds of entities, the states of those without a table, and the changes of both that become events.

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

CREATE FUNCTION automation_internal.capture_change() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'automation_capture_change';
COMMENT ON FUNCTION automation_internal.capture_change() IS 'Records a change of a watched table as an event.';

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

CREATE FUNCTION automation.extract_refs(condition text)
RETURNS TABLE (ref text, kind text, entity_id text) IMMUTABLE STRICT
LANGUAGE c AS 'MODULE_PATHNAME', 'extract_refs_wrapper';
COMMENT ON FUNCTION automation.extract_refs IS 'Which entities a condition reads; an entity_id of NULL is all of the kind.';

-- Domain events from changes: rules that give a change further topics. Nothing is written for a derived event; the router
-- works the topics out when it routes the change, and whoever is started or woken is told the topic in its dispatch.
CREATE TABLE automation_internal.derived_event (
    -- rises in the order of registration, which is the order of the topics
    id          integer     GENERATED ALWAYS AS IDENTITY CONSTRAINT derived_event_pkey PRIMARY KEY,
    kind        text        NOT NULL REFERENCES automation_internal.entity_kind ON DELETE CASCADE,
    name        text        NOT NULL,
    topic       text        NOT NULL,
    condition   text        NOT NULL,
    created_by  oid         NOT NULL,
    created_at  timestamptz NOT NULL,
    CONSTRAINT derived_event_kind_name_key UNIQUE (kind, name)
);
COMMENT ON TABLE automation_internal.derived_event IS 'Which changes of a kind are also events of other topics.';

CREATE VIEW automation.derived_events WITH (security_barrier) AS
SELECT d.kind,
       d.name,
       d.topic,
       d.condition,
       pg_catalog.pg_get_userbyid(d.created_by) AS created_by,
       d.created_at
  FROM automation_internal.derived_event AS d
  JOIN automation_internal.entity_kind AS k ON k.kind = d.kind
 WHERE pg_catalog.pg_has_role(d.created_by, 'USAGE')
    OR pg_catalog.has_table_privilege(k.relation, 'SELECT')
 ORDER BY d.kind, d.id;
COMMENT ON VIEW automation.derived_events IS 'Events that are derived from changes, in the order in which they are worked out.';
COMMENT ON COLUMN automation.derived_events.kind IS 'The kind whose changes are looked at.';
COMMENT ON COLUMN automation.derived_events.name IS 'Its name within the kind, for drop_derived_event().';
COMMENT ON COLUMN automation.derived_events.topic IS 'The topic that the change has as well.';
COMMENT ON COLUMN automation.derived_events.condition IS 'For which changes.';
COMMENT ON COLUMN automation.derived_events.created_by IS 'Who defined it.';
COMMENT ON COLUMN automation.derived_events.created_at IS 'When it was defined or last changed.';
SET LOCAL search_path = automation, pg_temp;
