-- Builders only build the document; everything is checked when it is defined. Bodies are bound when they are created
-- (BEGIN ATOMIC), so no object of a user's can take the place of what they call.

CREATE DOMAIN automation.trigger AS jsonb
    CONSTRAINT trigger_check CHECK (pg_catalog.jsonb_typeof(VALUE) = 'object' AND VALUE ? 'on');
COMMENT ON DOMAIN automation.trigger IS 'What starts a run, made by the on_... functions.';

CREATE DOMAIN automation.step AS jsonb
    CONSTRAINT step_check CHECK (pg_catalog.jsonb_typeof(VALUE) = 'object' AND VALUE ? 'do');
COMMENT ON DOMAIN automation.step IS 'One step, made by sql(), call(), publish(), notify().';

CREATE FUNCTION automation.on_created(kind text, filter text DEFAULT NULL, id text DEFAULT NULL)
RETURNS automation.trigger LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(
        pg_catalog.jsonb_build_object('on', 'created', 'id', id, 'kind', kind, 'filter', filter));
END;
COMMENT ON FUNCTION automation.on_created(text, text, text) IS 'Fires when an entity of the kind comes into being.';

CREATE FUNCTION automation.on_updated(kind text, columns text[] DEFAULT NULL, filter text DEFAULT NULL,
                                      id text DEFAULT NULL)
RETURNS automation.trigger LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(
        pg_catalog.jsonb_build_object('on', 'updated', 'id', id, 'kind', kind, 'columns', columns, 'filter', filter));
END;
COMMENT ON FUNCTION automation.on_updated(text, text[], text, text) IS 'Fires when an entity of the kind changes; with columns, only if one of them did.';

CREATE FUNCTION automation.on_deleted(kind text, filter text DEFAULT NULL, id text DEFAULT NULL)
RETURNS automation.trigger LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(
        pg_catalog.jsonb_build_object('on', 'deleted', 'id', id, 'kind', kind, 'filter', filter));
END;
COMMENT ON FUNCTION automation.on_deleted(text, text, text) IS 'Fires when an entity of the kind is removed.';

CREATE FUNCTION automation.on_changed(kind text, filter text DEFAULT NULL, id text DEFAULT NULL)
RETURNS automation.trigger LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(
        pg_catalog.jsonb_build_object('on', 'changed', 'id', id, 'kind', kind, 'filter', filter));
END;
COMMENT ON FUNCTION automation.on_changed(text, text, text) IS 'Fires when an entity of the kind is created, updated or deleted.';

CREATE FUNCTION automation.on_event(pattern text, filter text DEFAULT NULL, id text DEFAULT NULL)
RETURNS automation.trigger LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(
        pg_catalog.jsonb_build_object('on', 'event', 'id', id, 'topic', pattern, 'filter', filter));
END;
COMMENT ON FUNCTION automation.on_event(text, text, text) IS 'Fires on events whose topic matches the pattern.';

CREATE FUNCTION automation.on_call(id text DEFAULT NULL)
RETURNS automation.trigger LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('on', 'call', 'id', id));
END;
COMMENT ON FUNCTION automation.on_call(text) IS 'Fires only when the automation is started by hand or by another automation.';

CREATE FUNCTION automation_internal.step_options(id text, condition text, continue_on_error boolean,
                                                 allow_failure boolean, timeout interval, enabled boolean)
RETURNS jsonb LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
        'id', id, 'condition', condition, 'continue_on_error', COALESCE(continue_on_error, allow_failure),
        'timeout', CASE WHEN timeout IS NOT NULL
                        THEN (EXTRACT(epoch FROM timeout) * 1000)::bigint::text || ' milliseconds' END,
        'enabled', enabled));
END;

CREATE FUNCTION automation.sql(text text, id text DEFAULT NULL, condition text DEFAULT NULL,
                               continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL,
                               timeout interval DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_build_object('do', 'sql', 'sql', text)
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, timeout, enabled);
END;
COMMENT ON FUNCTION automation.sql(text, text, text, boolean, boolean, interval, boolean) IS 'A step that runs SQL as the automation''s owner; {{ expression }} becomes a bound parameter.';

CREATE FUNCTION automation.call(function text, args text DEFAULT NULL, id text DEFAULT NULL,
                                condition text DEFAULT NULL, continue_on_error boolean DEFAULT NULL,
                                allow_failure boolean DEFAULT NULL, timeout interval DEFAULT NULL,
                                enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(
               pg_catalog.jsonb_build_object('do', 'call', 'function', function, 'args', args))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, timeout, enabled);
END;
COMMENT ON FUNCTION automation.call(text, text, text, text, boolean, boolean, interval, boolean) IS 'A step that calls a function taking and returning jsonb; args is an expression.';

CREATE FUNCTION automation.publish(topic text, payload text DEFAULT NULL, id text DEFAULT NULL,
                                   condition text DEFAULT NULL, continue_on_error boolean DEFAULT NULL,
                                   allow_failure boolean DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(
               pg_catalog.jsonb_build_object('do', 'publish', 'topic', topic, 'payload', payload))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, NULL, enabled);
END;
COMMENT ON FUNCTION automation.publish(text, text, text, text, boolean, boolean, boolean) IS 'A step that publishes an event; payload is an expression.';

CREATE FUNCTION automation.notify(channel text, payload text DEFAULT NULL, id text DEFAULT NULL,
                                  condition text DEFAULT NULL, continue_on_error boolean DEFAULT NULL,
                                  allow_failure boolean DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(
               pg_catalog.jsonb_build_object('do', 'notify', 'channel', channel, 'payload', payload))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, NULL, enabled);
END;
COMMENT ON FUNCTION automation.notify(text, text, text, text, boolean, boolean, boolean) IS 'A step that sends a NOTIFY; payload is an expression.';
