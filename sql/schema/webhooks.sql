SET LOCAL search_path = pg_catalog, pg_temp;
-- What leaves the database: messages that steps have ordered, where they may go, what became of them. A message is
-- written in the transaction of its run, and sent by the courier after the commit. outbox holds live ones only: what has
-- ended moves to delivery. Secrets are kept sealed and opened by nobody but the courier.

CREATE SEQUENCE automation_internal.outbox_id_seq CACHE 1;

CREATE TABLE automation_internal.secret (
    owner           oid         NOT NULL,
    owner_name      name        NOT NULL,
    name            text        NOT NULL,
    host            text,
    sealed          bytea       NOT NULL,
    -- while a secret is being replaced, receivers may still know the one before
    previous        bytea,
    previous_until  timestamptz,
    created_at      timestamptz NOT NULL,
    CONSTRAINT secret_pkey PRIMARY KEY (owner, name),
    CONSTRAINT secret_previous_check CHECK ((previous IS NULL) = (previous_until IS NULL))
);
COMMENT ON TABLE automation_internal.secret IS 'Keys and passwords, sealed with the key of automation_engine.secret_key_file, owner and name. host: the only host, or *.suffix, that it may be sent to.';

CREATE FUNCTION automation.set_secret(name text, value text, host text DEFAULT NULL, owner text DEFAULT NULL)
RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'set_secret_wrapper';
COMMENT ON FUNCTION automation.set_secret(text, text, text, text) IS 'Keeps a secret, sealed; nobody can read it back. With host, it is sent nowhere else. Replaced, the one before still signs for a day.';

CREATE FUNCTION automation.set_secret_from_file(name text, path text, host text DEFAULT NULL, owner text DEFAULT NULL)
RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'set_secret_from_file_wrapper';
COMMENT ON FUNCTION automation.set_secret_from_file(text, text, text, text) IS 'As set_secret(), with the value in a file on the server''s machine, so that it stands in no statement and no log. Needs pg_read_server_files.';

CREATE FUNCTION automation.drop_secret(name text, owner text DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'drop_secret_wrapper';
COMMENT ON FUNCTION automation.drop_secret(text, text) IS 'Forgets a secret; true if it was there.';

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

CREATE TABLE automation_internal.endpoint (
    owner            oid         NOT NULL,
    owner_name       name        NOT NULL,
    name             text        NOT NULL,
    url              text        NOT NULL,
    secret           text,
    headers          json,
    timeout_ms       integer     NOT NULL DEFAULT 5000,
    max_attempts     integer     NOT NULL DEFAULT 5,
    disabled_at      timestamptz,
    disabled_reason  text,
    CONSTRAINT endpoint_pkey PRIMARY KEY (owner, name),
    CONSTRAINT endpoint_disabled_check CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL))
);
COMMENT ON TABLE automation_internal.endpoint IS 'Receivers that have a name. A step copies what stands here into its message; only whether it is disabled is asked again when sending.';

CREATE FUNCTION automation.set_endpoint(name text, url text, secret text DEFAULT NULL, headers jsonb DEFAULT NULL,
    timeout interval DEFAULT NULL, max_attempts integer DEFAULT NULL, owner text DEFAULT NULL)
RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'set_endpoint_wrapper';
COMMENT ON FUNCTION automation.set_endpoint(text, text, text, jsonb, interval, integer, text) IS 'Gives a receiver a name that webhook() can use, or changes it; one that was disabled is enabled again.';

CREATE FUNCTION automation.drop_endpoint(name text, owner text DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'drop_endpoint_wrapper';
COMMENT ON FUNCTION automation.drop_endpoint(text, text) IS 'Forgets a receiver; true if it was there. Messages on their way to it stay on their way.';

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

CREATE TABLE automation_internal.egress_rule (
    id          integer     GENERATED ALWAYS AS IDENTITY CONSTRAINT egress_rule_pkey PRIMARY KEY,
    role        oid         NOT NULL,
    role_name   name        NOT NULL,
    host        text        NOT NULL,
    port        integer,
    cidr        cidr,
    created_at  timestamptz NOT NULL,
    CONSTRAINT egress_rule_port_check CHECK (port BETWEEN 1 AND 65535)
);
COMMENT ON TABLE automation_internal.egress_rule IS 'Where messages of automations that a role owns may go; nowhere without a rule. host: a name, an address, or *.suffix. cidr: private addresses that the host may have.';
-- the parts that may be missing are told apart from every value they can have
CREATE UNIQUE INDEX egress_rule_role_host_port_cidr_key ON automation_internal.egress_rule
    (role, host, COALESCE(port, 0), COALESCE(cidr, '0.0.0.0/0'::cidr), (cidr IS NULL));

CREATE FUNCTION automation.allow_egress(role regrole, host text, port integer DEFAULT NULL, cidr cidr DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'allow_egress_wrapper';
COMMENT ON FUNCTION automation.allow_egress(regrole, text, integer, cidr) IS 'Lets messages of automations that the role, or a member of it, owns go to a host; true if that is new. cidr: private addresses that the host may have.';

CREATE FUNCTION automation.deny_egress(role regrole, host text, port integer DEFAULT NULL, cidr cidr DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'deny_egress_wrapper';
COMMENT ON FUNCTION automation.deny_egress(regrole, text, integer, cidr) IS 'Takes back what allow_egress() allowed with the same arguments; true if it was there.';

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

CREATE TABLE automation_internal.outbox (
    id             bigint      NOT NULL CONSTRAINT outbox_pkey PRIMARY KEY,
    message_id     uuid        NOT NULL,
    owner          oid         NOT NULL,
    automation_id  integer     NOT NULL,
    run_id         bigint      NOT NULL,
    step           text        NOT NULL,
    event_id       bigint,
    tenant         text,
    endpoint       text,
    url            text        NOT NULL,
    method         text        NOT NULL,
    headers        json,
    body           text,
    secret         text,
    delivery       text        NOT NULL,
    timeout_ms     integer     NOT NULL,
    max_attempts   integer     NOT NULL,
    backoff        json,
    created_at     timestamptz NOT NULL,
    state          text        NOT NULL DEFAULT 'queued',
    attempt        integer     NOT NULL DEFAULT 0,
    boot           bigint,
    next_at        timestamptz NOT NULL,
    last_status    integer,
    last_error     text,
    CONSTRAINT outbox_method_check CHECK (method IN ('GET', 'POST', 'PUT', 'PATCH', 'DELETE')),
    CONSTRAINT outbox_delivery_check CHECK (delivery IN ('at_least_once', 'at_most_once')),
    CONSTRAINT outbox_state_check CHECK (state IN ('queued', 'sending')),
    CONSTRAINT outbox_sending_check CHECK (state = 'queued' OR boot IS NOT NULL)
) WITH (fillfactor = 70);
COMMENT ON TABLE automation_internal.outbox IS 'Messages on their way out. headers: an object of texts and of {"secret": name}; backoff: see crates/core/src/delivery.rs, NULL for two, four, eight ... minutes; boot: the start of the server in which it was last sent, so that one interrupted by a crash is known.';
-- serves the courier
CREATE INDEX outbox_next_at_idx ON automation_internal.outbox (next_at);

CREATE TABLE automation_internal.delivery (
    id               bigint      NOT NULL,
    message_id       uuid        NOT NULL,
    owner            oid         NOT NULL,
    automation_id    integer     NOT NULL,
    run_id           bigint      NOT NULL,
    step             text        NOT NULL,
    event_id         bigint,
    tenant           text,
    endpoint         text,
    url              text        NOT NULL,
    method           text        NOT NULL,
    headers          json,
    body             text,
    secret           text,
    delivery         text        NOT NULL,
    timeout_ms       integer     NOT NULL,
    max_attempts     integer     NOT NULL,
    backoff          json,
    created_at       timestamptz NOT NULL,
    state            text        NOT NULL,
    attempt          integer     NOT NULL,
    last_status      integer,
    last_error       text,
    ended_at         timestamptz NOT NULL,
    response_status  integer,
    response_body    text,
    duration_ms      integer,
    CONSTRAINT delivery_state_check CHECK (state IN ('delivered', 'dead', 'ambiguous', 'cancelled'))
) PARTITION BY RANGE (ended_at);
COMMENT ON TABLE automation_internal.delivery IS 'Messages that are not on their way any more. ambiguous: it may have arrived and must not be sent twice. Insert-only; retention drops partitions.';
CREATE INDEX delivery_id_idx ON automation_internal.delivery (id);
CREATE TABLE automation_internal.delivery_default PARTITION OF automation_internal.delivery DEFAULT;

CREATE TABLE automation_internal.delivery_attempt (
    outbox_id   bigint      NOT NULL,
    attempt     integer     NOT NULL,
    started_at  timestamptz NOT NULL,
    ended_at    timestamptz NOT NULL,
    status      integer,
    error       text
) PARTITION BY RANGE (ended_at);
COMMENT ON TABLE automation_internal.delivery_attempt IS 'Each time that a message was sent, and what came back. Insert-only; retention drops partitions.';
CREATE INDEX delivery_attempt_outbox_id_idx ON automation_internal.delivery_attempt (outbox_id);
CREATE TABLE automation_internal.delivery_attempt_default PARTITION OF automation_internal.delivery_attempt DEFAULT;

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

CREATE FUNCTION automation.redeliver(id bigint)
RETURNS bigint LANGUAGE c AS 'MODULE_PATHNAME', 'redeliver_wrapper';
COMMENT ON FUNCTION automation.redeliver(bigint) IS 'Sends a message that has ended, see deliveries, once more with the same message id; returns the new delivery.';
SET LOCAL search_path = automation, pg_temp;
