SET LOCAL search_path = pg_catalog, pg_temp;
-- Who may hear whose events, and start whose automations by them. of_role: the role that speaks, the emitter of a grant to
-- listen, the owner of the automations of a grant to emit; 0 for all roles. settled: the grantor had the privileges of both
-- sides. Column order is known to src/store/topic_grants.rs.
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
COMMENT ON TABLE automation_internal.topic_grant IS 'Rights on topics, and on kinds without a table, of roles other than their own.';

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
COMMENT ON VIEW automation.topic_grants IS 'Rights on topics that you have, that you have granted, and that are of all roles; see grant_topic().';
COMMENT ON COLUMN automation.topic_grants.role IS 'The role that has the right.';
COMMENT ON COLUMN automation.topic_grants.prefix IS 'On this topic and those below it; empty for all topics.';
COMMENT ON COLUMN automation.topic_grants.may IS 'emit: start automations by its events. listen: hear events of others.';
COMMENT ON COLUMN automation.topic_grants.of IS 'Whose automations it may start, or whose events it may hear; NULL for those of all roles.';
COMMENT ON COLUMN automation.topic_grants.settled IS 'It stands alone. If not, automations hear the events only together with a grant of the other side.';
COMMENT ON COLUMN automation.topic_grants.granted_by IS 'Who granted it.';
COMMENT ON COLUMN automation.topic_grants.granted_at IS 'When.';
SET LOCAL search_path = automation, pg_temp;
