SET LOCAL search_path = pg_catalog, pg_temp;
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
