SET LOCAL search_path = pg_catalog, pg_temp;
-- The event log: events, their ids, how far they are routed, and the rights to hear them.

-- Gives out blocks of ids, see src/store/event_ids.rs.
CREATE SEQUENCE automation_internal.event_id_seq INCREMENT 128 CACHE 1;

-- One row for each right of a role (grantee) on topics under a prefix. may = 'listen': the grantee hears events that of_role
-- emits. may = 'emit': events of the grantee start automations of of_role. of_role = 0: all roles. settled: the grantor had the
-- privileges of grantee and of_role, so that no second grant is needed. Column order is known to src/store/topic_grants.rs.
CREATE TABLE automation_internal.topic_grant (
    grantee     oid         NOT NULL,
    prefix      text        NOT NULL,
    may         text        NOT NULL,
    of_role     oid         NOT NULL,
    settled     boolean     NOT NULL,
    granted_by  oid         NOT NULL,
    granted_at  timestamptz NOT NULL,
    CONSTRAINT topic_grant_pkey PRIMARY KEY (grantee, prefix, may, of_role),
    CONSTRAINT topic_grant_may_check CHECK (may IN ('emit', 'listen'))
);
COMMENT ON TABLE automation_internal.topic_grant IS 'Rights of a role on the topics, and on the kinds without a table, of other roles.';

CREATE VIEW automation.topic_grants WITH (security_barrier) AS
SELECT pg_catalog.pg_get_userbyid(g.grantee) AS role,
       g.prefix,
       g.may,
       CASE WHEN g.of_role <> 0 THEN pg_catalog.pg_get_userbyid(g.of_role) END AS of,
       g.settled,
       pg_catalog.pg_get_userbyid(g.granted_by) AS granted_by,
       g.granted_at
  FROM automation_internal.topic_grant AS g
 WHERE g.of_role = 0
    OR pg_catalog.pg_has_role(g.grantee, 'USAGE')
    OR pg_catalog.pg_has_role(g.of_role, 'USAGE')
 ORDER BY g.prefix, role, g.may, of;
COMMENT ON VIEW automation.topic_grants IS 'Rights on topics: those of your roles, those on events and automations of your roles, and those on events and automations of all roles; see grant_topic().';
COMMENT ON COLUMN automation.topic_grants.role IS 'The role that has the right.';
COMMENT ON COLUMN automation.topic_grants.prefix IS 'On this topic and those below it; empty for all topics.';
COMMENT ON COLUMN automation.topic_grants.may IS 'emit: start automations by its events. listen: hear events of others.';
COMMENT ON COLUMN automation.topic_grants.of IS 'Whose automations it may start, or whose events it may hear; NULL for those of all roles.';
COMMENT ON COLUMN automation.topic_grants.settled IS 'True if this grant alone is enough. If false, automations hear the events only after the other role has made the counterpart grant.';
COMMENT ON COLUMN automation.topic_grants.granted_by IS 'The role that granted the right.';
COMMENT ON COLUMN automation.topic_grants.granted_at IS 'When it was granted.';

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

CREATE VIEW automation.events WITH (security_barrier) AS
SELECT e.id,
       COALESCE(e.topic, e.kind || CASE e.op WHEN 'c' THEN '.created' WHEN 'u' THEN '.updated' WHEN 'd' THEN '.deleted'
                                             WHEN 't' THEN '.truncated' END) AS topic,
       e.kind,
       e.entity_id,
       CASE e.op WHEN 'c' THEN 'created' WHEN 'u' THEN 'updated' WHEN 'd' THEN 'deleted' WHEN 't' THEN 'truncated'
                 WHEN 's' THEN 'started' WHEN 'g' THEN 'signalled' WHEN 'r' THEN 'ended' WHEN 'm' THEN 'moved'
                 ELSE 'emitted' END AS op,
       CASE WHEN e.op = 'u' AND e.changed IS NULL
            THEN ARRAY(SELECT f.name FROM pg_catalog.json_object_keys(e.prev) AS f (name) ORDER BY f.name COLLATE "C")
            ELSE e.changed END AS changed,
       CASE WHEN e.op = 'u' THEN e.next::jsonb || COALESCE(e.prev::jsonb, '{}') ELSE e.prev::jsonb END AS prev,
       CASE WHEN e.op NOT IN ('s', 'm') THEN e.next::jsonb END AS next,
       e.payload::jsonb AS payload,
       e.actor,
       pg_catalog.pg_get_userbyid(e.role) AS role,
       e.cause_run,
       e.depth,
       e.tenant,
       e.dedup_key,
       e.truncated,
       e.occurred_at,
       e.xid
  FROM automation_internal.event AS e
 WHERE CASE
       -- Orders to the engine (a start, a signal, the end of a run, a move), whatever table they are about: their payload
       -- is what the role that gave the order has read, a row of its own query for example.
       WHEN e.op IN ('s', 'g', 'r', 'm') THEN pg_catalog.pg_has_role(e.role, 'USAGE')
       -- Changes of a kind without a table: its owner decides which roles read it.
       WHEN e.relation IS NULL AND e.op IN ('c', 'u', 'd', 't')
       THEN EXISTS (SELECT FROM automation_internal.entity_kind AS k
                     WHERE k.kind = e.kind AND k.relation IS NULL
                       AND (pg_catalog.pg_has_role(k.created_by, 'USAGE')
                            OR EXISTS (SELECT FROM automation_internal.topic_grant AS g
                                        WHERE g.may = 'listen'
                                          AND (g.prefix = '' OR g.prefix = k.kind)
                                          AND g.of_role IN (0, k.created_by)
                                          AND pg_catalog.pg_has_role(g.grantee, 'USAGE'))))
       -- Custom events, by Grants::may_read() of crates/core/src/topic/grants.rs, and events of the engine.
       WHEN e.relation IS NULL
       THEN pg_catalog.pg_has_role(e.role, 'USAGE')
            OR (e.op = 'e'
                AND NOT e.topic LIKE 'automation.%'
                AND EXISTS (SELECT FROM automation_internal.topic_grant AS g
                             WHERE (g.prefix = '' OR g.prefix = e.topic
                                    OR pg_catalog.starts_with(e.topic, g.prefix || '.'))
                               AND CASE WHEN g.may = 'listen'
                                        THEN g.of_role IN (0, e.role) AND pg_catalog.pg_has_role(g.grantee, 'USAGE')
                                        ELSE g.settled
                                             AND (g.of_role = 0 OR pg_catalog.pg_has_role(g.of_role, 'USAGE'))
                                             AND pg_catalog.pg_has_role(e.role, g.grantee, 'USAGE') END))
       -- Changes of a table: SELECT on all of it and USAGE on its schema, as they are now. With row security in force for the
       -- caller, none: no policy can be evaluated for a row as it once was. NULL: the table is gone.
       ELSE COALESCE(pg_catalog.has_table_privilege(e.relation, 'SELECT')
                     AND NOT pg_catalog.row_security_active(e.relation)
                     AND (SELECT pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE')
                            FROM pg_catalog.pg_class AS c
                           WHERE c.oid = e.relation),
                     pg_catalog.pg_has_role(e.role, 'USAGE')) END
 ORDER BY e.id DESC;
COMMENT ON VIEW automation.events IS 'What happened, newest first: changes of tables you may read whole and of kinds you may read, events and orders of your own roles, and events you were granted to hear.';
COMMENT ON COLUMN automation.events.id IS 'Number of the event; rises in the order of a row''s versions.';
COMMENT ON COLUMN automation.events.topic IS 'kind.created, kind.updated, kind.deleted, kind.truncated, or the topic it was published with.';
COMMENT ON COLUMN automation.events.kind IS 'Kind of the entity that changed.';
COMMENT ON COLUMN automation.events.entity_id IS 'Its key as text; a composite key as a JSON list.';
COMMENT ON COLUMN automation.events.op IS 'created, updated, deleted, truncated, emitted, started, signalled, ended (a run) or moved (a run).';
COMMENT ON COLUMN automation.events.changed IS 'Names of the fields that differ.';
COMMENT ON COLUMN automation.events.prev IS 'The entity before.';
COMMENT ON COLUMN automation.events.next IS 'The entity after.';
COMMENT ON COLUMN automation.events.payload IS 'What was published with it.';
COMMENT ON COLUMN automation.events.actor IS 'automation_engine.actor of the writer, or its role; system:automation:<name> for a run''s own writes.';
COMMENT ON COLUMN automation.events.role IS 'The role that wrote.';
COMMENT ON COLUMN automation.events.cause_run IS 'The run that wrote, if one did.';
COMMENT ON COLUMN automation.events.depth IS 'How many runs deep the chain of causes is.';
COMMENT ON COLUMN automation.events.tenant IS 'The tenant it belongs to.';
COMMENT ON COLUMN automation.events.dedup_key IS 'The key that emit() was given.';
COMMENT ON COLUMN automation.events.truncated IS 'Values over the size limit were left out.';
COMMENT ON COLUMN automation.events.occurred_at IS 'When the change was made; its transaction may have committed later.';
COMMENT ON COLUMN automation.events.xid IS 'The transaction that wrote it.';

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

CREATE TABLE automation_internal.subscription (
    role        oid         NOT NULL,
    pattern     text        NOT NULL,
    channel     text        NOT NULL,
    created_at  timestamptz NOT NULL,
    CONSTRAINT subscription_pkey PRIMARY KEY (role, pattern, channel)
);
COMMENT ON TABLE automation_internal.subscription IS 'Which events are told to which channels, and who may see what is told there.';

CREATE VIEW automation.subscriptions WITH (security_barrier) AS
SELECT s.pattern, s.channel, pg_catalog.pg_get_userbyid(s.role) AS role, s.created_at
  FROM automation_internal.subscription AS s
 WHERE pg_catalog.pg_has_role(s.role, 'USAGE')
 ORDER BY s.pattern, s.channel;
COMMENT ON VIEW automation.subscriptions IS 'Which events are told by NOTIFY, see subscribe().';
COMMENT ON COLUMN automation.subscriptions.pattern IS 'Topics that match it are told.';
COMMENT ON COLUMN automation.subscriptions.channel IS 'The channel to LISTEN to.';
COMMENT ON COLUMN automation.subscriptions.role IS 'Who subscribed; only events that it may see are told.';
COMMENT ON COLUMN automation.subscriptions.created_at IS 'Since when.';
SET LOCAL search_path = automation, pg_temp;
