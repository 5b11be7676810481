SET LOCAL search_path = pg_catalog, pg_temp;
-- Messages to receivers outside: the step, the functions around it, what people see.

CREATE FUNCTION automation.webhook(url text, body text DEFAULT NULL, method text DEFAULT NULL, headers jsonb DEFAULT NULL,
    secret text DEFAULT NULL, delivery text DEFAULT NULL, id text DEFAULT NULL, condition text DEFAULT NULL,
    continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL, timeout interval DEFAULT NULL,
    retry jsonb DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'webhook',
               CASE WHEN url LIKE '%://%' THEN 'url' ELSE 'endpoint' END, url, 'body', body, 'method', method,
               'headers', headers, 'secret', secret, 'delivery', delivery))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, timeout, retry, enabled);
END;
COMMENT ON FUNCTION automation.webhook(text, text, text, jsonb, text, text, text, text, boolean, boolean, interval, jsonb, boolean) IS 'A step that sends a message to a url, or to an endpoint of that name; body is an expression. It is completed when the message is in the outbox.';

CREATE FUNCTION automation.set_secret(name text, value text, host text DEFAULT NULL, owner text DEFAULT NULL)
RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'set_secret_wrapper';
COMMENT ON FUNCTION automation.set_secret(text, text, text, text) IS 'Keeps a secret, sealed; nobody can read it back. With host, it is sent nowhere else. Replaced, the one before still signs for a day.';

CREATE FUNCTION automation.set_secret_from_file(name text, path text, host text DEFAULT NULL, owner text DEFAULT NULL)
RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'set_secret_from_file_wrapper';
COMMENT ON FUNCTION automation.set_secret_from_file(text, text, text, text) IS 'As set_secret(), with the value in a file on the server''s machine, so that it stands in no statement and no log. Needs pg_read_server_files.';

CREATE FUNCTION automation.drop_secret(name text, owner text DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'drop_secret_wrapper';
COMMENT ON FUNCTION automation.drop_secret(text, text) IS 'Forgets a secret; true if it was there.';

CREATE FUNCTION automation.set_endpoint(name text, url text, secret text DEFAULT NULL, headers jsonb DEFAULT NULL,
    timeout interval DEFAULT NULL, max_attempts integer DEFAULT NULL, owner text DEFAULT NULL)
RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'set_endpoint_wrapper';
COMMENT ON FUNCTION automation.set_endpoint(text, text, text, jsonb, interval, integer, text) IS 'Gives a receiver a name that webhook() can use, or changes it; one that was disabled is enabled again.';

CREATE FUNCTION automation.drop_endpoint(name text, owner text DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'drop_endpoint_wrapper';
COMMENT ON FUNCTION automation.drop_endpoint(text, text) IS 'Forgets a receiver; true if it was there. Messages on their way to it stay on their way.';

CREATE FUNCTION automation.allow_egress(role regrole, host text, port integer DEFAULT NULL, cidr cidr DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'allow_egress_wrapper';
COMMENT ON FUNCTION automation.allow_egress(regrole, text, integer, cidr) IS 'Lets messages of automations that the role, or a member of it, owns go to a host; true if that is new. cidr: private addresses that the host may have.';

CREATE FUNCTION automation.deny_egress(role regrole, host text, port integer DEFAULT NULL, cidr cidr DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'deny_egress_wrapper';
COMMENT ON FUNCTION automation.deny_egress(regrole, text, integer, cidr) IS 'Takes back what allow_egress() allowed with the same arguments; true if it was there.';

CREATE FUNCTION automation.redeliver(id bigint)
RETURNS bigint LANGUAGE c AS 'MODULE_PATHNAME', 'redeliver_wrapper';
COMMENT ON FUNCTION automation.redeliver(bigint) IS 'Sends a message that has ended, see deliveries, once more with the same message id; returns the new delivery.';

CREATE VIEW automation.deliveries WITH (security_barrier) AS
SELECT d.id,
       a.name AS automation,
       d.run_id,
       d.step,
       d.endpoint,
       -- the rest of an address may be meant for the receiver alone
       pg_catalog.substring(d.url, '^[^:]+://(\[[^]]*\]|[^/?#:]+)') AS host,
       d.state,
       d.attempt,
       d.next_at,
       d.last_status,
       d.last_error,
       d.created_at,
       d.ended_at,
       d.tenant,
       'msg_' || d.message_id AS message_id,
       d.method,
       d.delivery,
       d.max_attempts,
       d.response_body,
       d.duration_ms
  FROM (SELECT o.id, o.owner, o.automation_id, o.run_id, o.step, o.endpoint, o.url, o.state, o.attempt, o.next_at,
               o.last_status, o.last_error, o.created_at, NULL::timestamptz AS ended_at, o.tenant, o.message_id, o.method,
               o.delivery, o.max_attempts, NULL AS response_body, NULL::integer AS duration_ms
          FROM automation_internal.outbox AS o
     UNION ALL
        SELECT e.id, e.owner, e.automation_id, e.run_id, e.step, e.endpoint, e.url, e.state, e.attempt, NULL,
               COALESCE(e.response_status, e.last_status), e.last_error, e.created_at, e.ended_at, e.tenant,
               e.message_id, e.method, e.delivery, e.max_attempts, e.response_body, e.duration_ms
          FROM automation_internal.delivery AS e) AS d
  LEFT JOIN automation_internal.automation AS a ON a.id = d.automation_id
 WHERE pg_catalog.pg_has_role(d.owner, 'USAGE')
 ORDER BY d.id DESC;
COMMENT ON VIEW automation.deliveries IS 'Messages of your automations on their way and ended, newest first; redeliver(id) sends one again.';
COMMENT ON COLUMN automation.deliveries.id IS 'For redeliver(id).';
COMMENT ON COLUMN automation.deliveries.automation IS 'Of which automation.';
COMMENT ON COLUMN automation.deliveries.run_id IS 'The run that ordered it, see runs.';
COMMENT ON COLUMN automation.deliveries.step IS 'The step that ordered it.';
COMMENT ON COLUMN automation.deliveries.endpoint IS 'The receiver''s name, see endpoints; NULL if it has none.';
COMMENT ON COLUMN automation.deliveries.host IS 'Where it goes.';
COMMENT ON COLUMN automation.deliveries.state IS 'queued, sending, delivered, dead (see dead_letters), ambiguous (it may have arrived, and must not twice) or cancelled.';
COMMENT ON COLUMN automation.deliveries.attempt IS 'How often it was sent.';
COMMENT ON COLUMN automation.deliveries.next_at IS 'When it is sent next.';
COMMENT ON COLUMN automation.deliveries.last_status IS 'The receiver''s last answer.';
COMMENT ON COLUMN automation.deliveries.last_error IS 'Why it did not arrive.';
COMMENT ON COLUMN automation.deliveries.created_at IS 'When the step ordered it.';
COMMENT ON COLUMN automation.deliveries.ended_at IS 'When it was delivered or given up.';
COMMENT ON COLUMN automation.deliveries.tenant IS 'The tenant of the run.';
COMMENT ON COLUMN automation.deliveries.message_id IS 'What the receiver sees as webhook-id, the same each time it is sent.';
COMMENT ON COLUMN automation.deliveries.method IS 'GET, POST, PUT, PATCH or DELETE.';
COMMENT ON COLUMN automation.deliveries.delivery IS 'at_least_once or at_most_once.';
COMMENT ON COLUMN automation.deliveries.max_attempts IS 'How often it is sent at most.';
COMMENT ON COLUMN automation.deliveries.response_body IS 'The beginning of what the receiver answered.';
COMMENT ON COLUMN automation.deliveries.duration_ms IS 'How long the last attempt took.';

CREATE VIEW automation.endpoints WITH (security_barrier) AS
SELECT e.name,
       e.url,
       e.secret,
       e.timeout_ms * interval '1 millisecond' AS timeout,
       e.max_attempts,
       e.disabled_at,
       e.disabled_reason,
       e.headers,
       COALESCE((SELECT r.rolname FROM pg_catalog.pg_roles AS r WHERE r.oid = e.owner), e.owner_name) AS owner
  FROM automation_internal.endpoint AS e
 WHERE pg_catalog.pg_has_role(e.owner, 'USAGE')
 ORDER BY owner, e.name;
COMMENT ON VIEW automation.endpoints IS 'Receivers that your automations can name.';
COMMENT ON COLUMN automation.endpoints.name IS 'For webhook(name).';
COMMENT ON COLUMN automation.endpoints.url IS 'Where it is.';
COMMENT ON COLUMN automation.endpoints.secret IS 'What its messages are signed with, see secrets.';
COMMENT ON COLUMN automation.endpoints.timeout IS 'How long it may take.';
COMMENT ON COLUMN automation.endpoints.max_attempts IS 'How often a message is sent at most.';
COMMENT ON COLUMN automation.endpoints.disabled_at IS 'Since when nothing can be ordered for it; set_endpoint() enables it again.';
COMMENT ON COLUMN automation.endpoints.disabled_reason IS 'Why.';
COMMENT ON COLUMN automation.endpoints.headers IS 'What every message to it carries; secrets by their names.';
COMMENT ON COLUMN automation.endpoints.owner IS 'Whose automations can name it.';

CREATE VIEW automation.secrets WITH (security_barrier) AS
SELECT s.name,
       s.host,
       s.created_at,
       s.previous_until AS rotated_until,
       COALESCE((SELECT r.rolname FROM pg_catalog.pg_roles AS r WHERE r.oid = s.owner), s.owner_name) AS owner
  FROM automation_internal.secret AS s
 WHERE pg_catalog.pg_has_role(s.owner, 'USAGE')
 ORDER BY owner, s.name;
COMMENT ON VIEW automation.secrets IS 'Secrets that your automations can use; their values are nowhere to be seen.';
COMMENT ON COLUMN automation.secrets.name IS 'For webhook(secret => name) and {"secret": name} in headers.';
COMMENT ON COLUMN automation.secrets.host IS 'The only host, or *.suffix, that it is sent to.';
COMMENT ON COLUMN automation.secrets.created_at IS 'When it was set.';
COMMENT ON COLUMN automation.secrets.rotated_until IS 'Until when the value before it signs as well.';
COMMENT ON COLUMN automation.secrets.owner IS 'Whose automations can use it.';

CREATE VIEW automation.egress_rules WITH (security_barrier) AS
SELECT COALESCE((SELECT o.rolname FROM pg_catalog.pg_roles AS o WHERE o.oid = r.role), r.role_name) AS role,
       r.host,
       r.port,
       r.cidr,
       r.created_at
  FROM automation_internal.egress_rule AS r
 WHERE pg_catalog.pg_has_role(r.role, 'USAGE')
 ORDER BY 1, r.host, r.id;
COMMENT ON VIEW automation.egress_rules IS 'Where messages of your automations may go.';
COMMENT ON COLUMN automation.egress_rules.role IS 'Whose messages: of automations that it, or a member of it, owns.';
COMMENT ON COLUMN automation.egress_rules.host IS 'A name, an address, or *.suffix.';
COMMENT ON COLUMN automation.egress_rules.port IS 'Only this port; NULL for those of automation_engine.http_ports.';
COMMENT ON COLUMN automation.egress_rules.cidr IS 'Private addresses that the host may have.';
COMMENT ON COLUMN automation.egress_rules.created_at IS 'When it was made.';
SET LOCAL search_path = automation, pg_temp;
