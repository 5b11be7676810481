SET LOCAL search_path = pg_catalog, pg_temp;
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
