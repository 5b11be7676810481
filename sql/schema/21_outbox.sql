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

-- serves whoever sends a message again that was given up
CREATE INDEX dead_letter_delivery_id_idx ON automation_internal.dead_letter (((delivery ->> 'id')::bigint))
    WHERE delivery IS NOT NULL;

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
SET LOCAL search_path = automation, pg_temp;
