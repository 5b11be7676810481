SET LOCAL search_path = pg_catalog, pg_temp;
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
SET LOCAL search_path = automation, pg_temp;
