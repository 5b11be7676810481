SET LOCAL search_path = pg_catalog, pg_temp;
-- Builders only build the document; everything is checked when it is defined. Bodies are bound when they are created
-- (BEGIN ATOMIC), so no object of a user's can take the place of what they call.

CREATE DOMAIN automation.trigger AS jsonb
    CONSTRAINT trigger_check CHECK (pg_catalog.jsonb_typeof(VALUE) = 'object' AND VALUE ? 'on');
COMMENT ON DOMAIN automation.trigger IS 'What starts a run, made by the on_... functions.';

CREATE DOMAIN automation.step AS jsonb
    CONSTRAINT step_check CHECK (pg_catalog.jsonb_typeof(VALUE) = 'object' AND VALUE ? 'do');
COMMENT ON DOMAIN automation.step IS 'One step, made by sql(), delay(), wait_until(), branch() and the others.';

CREATE FUNCTION automation_internal.duration(length interval)
RETURNS text LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    -- months, days and clock time stay apart: a month is not thirty days
    SELECT CASE WHEN length IS NOT NULL THEN
        COALESCE(NULLIF(pg_catalog.concat_ws(' ',
            CASE WHEN EXTRACT(year FROM length) * 12 + EXTRACT(month FROM length) <> 0
                 THEN (EXTRACT(year FROM length) * 12 + EXTRACT(month FROM length))::bigint::text || ' months' END,
            CASE WHEN EXTRACT(day FROM length) <> 0 THEN EXTRACT(day FROM length)::bigint::text || ' days' END,
            CASE WHEN EXTRACT(hour FROM length) * 3600000 + EXTRACT(minute FROM length) * 60000
                      + EXTRACT(milliseconds FROM length) <> 0
                 THEN (EXTRACT(hour FROM length) * 3600000 + EXTRACT(minute FROM length) * 60000
                       + EXTRACT(milliseconds FROM length))::bigint::text || ' milliseconds' END),
            ''), '0 milliseconds') END;
END;
COMMENT ON FUNCTION automation_internal.duration(interval) IS 'An interval as documents write it, whatever intervalstyle is.';

CREATE FUNCTION automation_internal.trigger_options(id text, filter text, hold_for interval, window_count integer,
                                                    window_within interval, window_per text, refire text)
RETURNS jsonb LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
        'id', id, 'filter', filter, 'hold_for', automation_internal.duration(hold_for),
        'window', CASE WHEN pg_catalog.num_nonnulls(window_count, window_within, window_per, refire) > 0 THEN
            pg_catalog.jsonb_build_object('count', window_count, 'within', automation_internal.duration(window_within),
                                          'per', window_per, 'refire', refire) END));
END;
COMMENT ON FUNCTION automation_internal.trigger_options(text, text, interval, integer, interval, text, text) IS 'What every trigger by an event can be given.';

CREATE FUNCTION automation.on_created(kind text, filter text DEFAULT NULL, id text DEFAULT NULL,
    hold_for interval DEFAULT NULL, window_count integer DEFAULT NULL, window_within interval DEFAULT NULL,
    window_per text DEFAULT NULL, refire text DEFAULT NULL)
RETURNS automation.trigger LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('on', 'created', 'kind', kind))
        || automation_internal.trigger_options(id, filter, hold_for, window_count, window_within, window_per, refire);
END;
COMMENT ON FUNCTION automation.on_created(text, text, text, interval, integer, interval, text, text) IS 'Fires when an entity of the kind comes into being.';

CREATE FUNCTION automation.on_updated(kind text, columns text[] DEFAULT NULL, filter text DEFAULT NULL, id text DEFAULT NULL,
    hold_for interval DEFAULT NULL, window_count integer DEFAULT NULL, window_within interval DEFAULT NULL,
    window_per text DEFAULT NULL, refire text DEFAULT NULL)
RETURNS automation.trigger LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('on', 'updated', 'kind', kind, 'columns', columns))
        || automation_internal.trigger_options(id, filter, hold_for, window_count, window_within, window_per, refire);
END;
COMMENT ON FUNCTION automation.on_updated(text, text[], text, text, interval, integer, interval, text, text) IS 'Fires when an entity of the kind changes; with columns, only if one of them did.';

CREATE FUNCTION automation.on_deleted(kind text, filter text DEFAULT NULL, id text DEFAULT NULL,
    hold_for interval DEFAULT NULL, window_count integer DEFAULT NULL, window_within interval DEFAULT NULL,
    window_per text DEFAULT NULL, refire text DEFAULT NULL)
RETURNS automation.trigger LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('on', 'deleted', 'kind', kind))
        || automation_internal.trigger_options(id, filter, hold_for, window_count, window_within, window_per, refire);
END;
COMMENT ON FUNCTION automation.on_deleted(text, text, text, interval, integer, interval, text, text) IS 'Fires when an entity of the kind is removed.';

CREATE FUNCTION automation.on_changed(kind text, filter text DEFAULT NULL, id text DEFAULT NULL,
    hold_for interval DEFAULT NULL, window_count integer DEFAULT NULL, window_within interval DEFAULT NULL,
    window_per text DEFAULT NULL, refire text DEFAULT NULL)
RETURNS automation.trigger LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('on', 'changed', 'kind', kind))
        || automation_internal.trigger_options(id, filter, hold_for, window_count, window_within, window_per, refire);
END;
COMMENT ON FUNCTION automation.on_changed(text, text, text, interval, integer, interval, text, text) IS 'Fires when an entity of the kind is created, updated or deleted.';

CREATE FUNCTION automation.on_state(kind text, field text DEFAULT NULL, from_value text DEFAULT NULL, to_value text DEFAULT NULL,
    id text DEFAULT NULL, not_from text[] DEFAULT NULL, not_to text[] DEFAULT NULL, filter text DEFAULT NULL,
    entity text DEFAULT NULL,
    hold_for interval DEFAULT NULL, window_count integer DEFAULT NULL, window_within interval DEFAULT NULL,
    window_per text DEFAULT NULL, refire text DEFAULT NULL)
RETURNS automation.trigger LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
        'on', 'state', 'kind', kind, 'field', field, 'from', from_value, 'to', to_value, 'not_from', not_from,
        'not_to', not_to, 'entity', entity))
        || automation_internal.trigger_options(id, filter, hold_for, window_count, window_within, window_per, refire);
END;
COMMENT ON FUNCTION automation.on_state(text, text, text, text, text, text[], text[], text, text, interval, integer, interval, text, text) IS 'Fires when a field goes from one value to another; without values, on any change of it.';

CREATE FUNCTION automation.on_numeric(kind text, field text DEFAULT NULL, above numeric DEFAULT NULL, below numeric DEFAULT NULL,
    id text DEFAULT NULL, value text DEFAULT NULL, filter text DEFAULT NULL, entity text DEFAULT NULL,
    hold_for interval DEFAULT NULL, window_count integer DEFAULT NULL, window_within interval DEFAULT NULL,
    window_per text DEFAULT NULL, refire text DEFAULT NULL)
RETURNS automation.trigger LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
        'on', 'numeric', 'kind', kind, 'field', field, 'value', value, 'above', above, 'below', below,
        'entity', entity))
        || automation_internal.trigger_options(id, filter, hold_for, window_count, window_within, window_per, refire);
END;
COMMENT ON FUNCTION automation.on_numeric(text, text, numeric, numeric, text, text, text, text, interval, integer, interval, text, text) IS 'Fires when a number comes into a range, not while it is in it.';

CREATE FUNCTION automation.on_event(pattern text, filter text DEFAULT NULL, id text DEFAULT NULL,
    hold_for interval DEFAULT NULL, window_count integer DEFAULT NULL, window_within interval DEFAULT NULL,
    window_per text DEFAULT NULL, refire text DEFAULT NULL)
RETURNS automation.trigger LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('on', 'event', 'topic', pattern))
        || automation_internal.trigger_options(id, filter, hold_for, window_count, window_within, window_per, refire);
END;
COMMENT ON FUNCTION automation.on_event(text, text, text, interval, integer, interval, text, text) IS 'Fires on events whose topic matches the pattern.';

CREATE FUNCTION automation.on_call(id text DEFAULT NULL)
RETURNS automation.trigger LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('on', 'call', 'id', id));
END;
COMMENT ON FUNCTION automation.on_call(text) IS 'Fires only when the automation is started by hand or by another automation.';

CREATE FUNCTION automation.dedup(key text, ttl interval DEFAULT NULL)
RETURNS jsonb LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(
        pg_catalog.jsonb_build_object('key', key, 'ttl', automation_internal.duration(ttl)));
END;
COMMENT ON FUNCTION automation.dedup(text, interval) IS 'For define(dedup => ...): events for which the key has the same value within the time start one run.';

CREATE FUNCTION automation.on_cron(expr text, timezone text DEFAULT 'UTC', missed text DEFAULT 'once',
                                   overlap text DEFAULT 'skip', id text DEFAULT NULL, filter text DEFAULT NULL)
RETURNS automation.trigger LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
        'on', 'cron', 'id', id, 'expr', expr, 'timezone', timezone, 'missed', missed, 'overlap', overlap,
        'filter', filter));
END;
COMMENT ON FUNCTION automation.on_cron(text, text, text, text, text, text) IS 'Fires by the clock: minute hour day month weekday, with seconds before them if there are six fields.';

CREATE FUNCTION automation.on_interval(every interval, missed text DEFAULT 'once', overlap text DEFAULT 'skip',
                                       id text DEFAULT NULL, filter text DEFAULT NULL)
RETURNS automation.trigger LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
        'on', 'interval', 'id', id, 'every', automation_internal.duration(every), 'missed', missed,
        'overlap', overlap, 'filter', filter));
END;
COMMENT ON FUNCTION automation.on_interval(interval, text, text, text, text) IS 'Fires at equal distances, counted from when the automation was made active.';

CREATE FUNCTION automation_internal.step_options(id text, condition text, continue_on_error boolean,
                                                 allow_failure boolean, timeout interval, retry jsonb, enabled boolean)
RETURNS jsonb LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
        'id', id, 'condition', condition, 'continue_on_error', COALESCE(continue_on_error, allow_failure),
        'timeout', automation_internal.duration(timeout), 'retry', retry, 'enabled', enabled));
END;
COMMENT ON FUNCTION automation_internal.step_options(text, text, boolean, boolean, interval, jsonb, boolean) IS 'What every step can be given.';

CREATE FUNCTION automation.sql(text text, id text DEFAULT NULL,
    condition text DEFAULT NULL, continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL,
    timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'sql', 'sql', text))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, timeout, retry, enabled);
END;
COMMENT ON FUNCTION automation.sql(text, text, text, boolean, boolean, interval, jsonb, boolean) IS 'A step that runs SQL as the automation''s owner; {{ expression }} becomes a bound parameter.';

CREATE FUNCTION automation.call(function text, args text DEFAULT NULL, id text DEFAULT NULL,
    condition text DEFAULT NULL, continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL,
    timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'call', 'function', function, 'args', args))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, timeout, retry, enabled);
END;
COMMENT ON FUNCTION automation.call(text, text, text, text, boolean, boolean, interval, jsonb, boolean) IS 'A step that calls a function taking and returning jsonb; args is an expression.';

CREATE FUNCTION automation.publish(topic text, payload text DEFAULT NULL, id text DEFAULT NULL,
    condition text DEFAULT NULL, continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL,
    timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'publish', 'topic', topic, 'payload', payload))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, timeout, retry, enabled);
END;
COMMENT ON FUNCTION automation.publish(text, text, text, text, boolean, boolean, interval, jsonb, boolean) IS 'A step that publishes an event; payload is an expression.';

CREATE FUNCTION automation.notify(channel text, payload text DEFAULT NULL, id text DEFAULT NULL,
    condition text DEFAULT NULL, continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL,
    timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'notify', 'channel', channel, 'payload', payload))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, timeout, retry, enabled);
END;
COMMENT ON FUNCTION automation.notify(text, text, text, text, boolean, boolean, interval, jsonb, boolean) IS 'A step that sends a NOTIFY; payload is an expression.';

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

CREATE FUNCTION automation.store_state(kind text, entity text, state text, id text DEFAULT NULL,
    condition text DEFAULT NULL, continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL,
    timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'store_state', 'kind', kind, 'entity', entity, 'state', state))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, timeout, retry, enabled);
END;
COMMENT ON FUNCTION automation.store_state(text, text, text, text, text, boolean, boolean, interval, jsonb, boolean) IS 'A step that gives an entity without a table its state, an expression; null removes it.';

CREATE FUNCTION automation.run(automation text, args text DEFAULT NULL, id text DEFAULT NULL,
    condition text DEFAULT NULL, continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL,
    timeout interval DEFAULT NULL, retry jsonb DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'run', 'automation', automation, 'args', args))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, timeout, retry, enabled);
END;
COMMENT ON FUNCTION automation.run(text, text, text, text, boolean, boolean, interval, jsonb, boolean) IS 'A step that starts another automation and waits for its end; args is an expression.';

CREATE FUNCTION automation.set(variables jsonb, id text DEFAULT NULL, condition text DEFAULT NULL,
    continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'set', 'variables', variables))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, NULL, NULL, enabled);
END;
COMMENT ON FUNCTION automation.set(jsonb, text, text, boolean, boolean, boolean) IS 'A step that gives variables their values; texts may hold {{ expression }}.';

CREATE FUNCTION automation.delay(duration interval DEFAULT NULL, until text DEFAULT NULL, id text DEFAULT NULL,
    condition text DEFAULT NULL, continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL,
    enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'delay',
               'for', automation_internal.duration(duration), 'until', until))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, NULL, NULL, enabled);
END;
COMMENT ON FUNCTION automation.delay(interval, text, text, text, boolean, boolean, boolean) IS 'A step that waits for a time, or until a point in time, given or computed.';

CREATE FUNCTION automation.wait_until(condition text, timeout interval DEFAULT NULL, continue_on_timeout boolean DEFAULT NULL, id text DEFAULT NULL, continue_on_error boolean DEFAULT NULL,
    allow_failure boolean DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'wait_until', 'until', condition, 'continue_on_timeout', continue_on_timeout))
        || automation_internal.step_options(id, NULL, continue_on_error, allow_failure, timeout, NULL, enabled);
END;
COMMENT ON FUNCTION automation.wait_until(text, interval, boolean, text, boolean, boolean, boolean) IS 'A step that waits until a condition holds, or for so long.';

CREATE FUNCTION automation.wait_for_event(pattern text, filter text DEFAULT NULL, timeout interval DEFAULT NULL, continue_on_timeout boolean DEFAULT NULL, lookback interval DEFAULT NULL, id text DEFAULT NULL, condition text DEFAULT NULL,
    continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'wait_for_event', 'topic', pattern, 'filter', filter, 'continue_on_timeout', continue_on_timeout,
        'lookback', automation_internal.duration(lookback)))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, timeout, NULL, enabled);
END;
COMMENT ON FUNCTION automation.wait_for_event(text, text, interval, boolean, interval, text, text, boolean, boolean, boolean) IS 'A step that waits for an event on a topic, or for so long; with lookback, events of that long ago count as well.';

CREATE FUNCTION automation.wait_signal(name text, timeout interval DEFAULT NULL, continue_on_timeout boolean DEFAULT NULL, key text DEFAULT NULL, id text DEFAULT NULL, condition text DEFAULT NULL,
    continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'wait_signal', 'signal', name, 'key', key, 'continue_on_timeout', continue_on_timeout))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, timeout, NULL, enabled);
END;
COMMENT ON FUNCTION automation.wait_signal(text, interval, boolean, text, text, text, boolean, boolean, boolean) IS 'A step that waits for signal(name), or for so long; key defaults to that of the run.';

CREATE FUNCTION automation.branch(condition text, yes text DEFAULT NULL, no text DEFAULT NULL, id text DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'branch', 'if', condition, 'yes', yes, 'no', no))
        || automation_internal.step_options(id, NULL, NULL, NULL, NULL, NULL, enabled);
END;
COMMENT ON FUNCTION automation.branch(text, text, text, text, boolean) IS 'A step that goes on at one of two steps; NULL is the next one.';

CREATE FUNCTION automation.require(condition text, id text DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'require', 'if', condition))
        || automation_internal.step_options(id, NULL, NULL, NULL, NULL, NULL, enabled);
END;
COMMENT ON FUNCTION automation.require(text, text, boolean) IS 'A step that ends the sequence it stands in unless a condition holds.';

CREATE FUNCTION automation.stop(status text DEFAULT NULL, message text DEFAULT NULL, id text DEFAULT NULL, condition text DEFAULT NULL,
    continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'stop', 'status', status, 'message', message))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, NULL, NULL, enabled);
END;
COMMENT ON FUNCTION automation.stop(text, text, text, text, boolean, boolean, boolean) IS 'A step that ends the run as completed, failed or cancelled.';

CREATE FUNCTION automation.choose(whens jsonb, otherwise automation.step[] DEFAULT NULL, id text DEFAULT NULL, condition text DEFAULT NULL,
    continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'choose', 'whens', whens, 'otherwise', pg_catalog.to_jsonb(otherwise)))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, NULL, NULL, enabled);
END;
COMMENT ON FUNCTION automation.choose(jsonb, automation.step[], text, text, boolean, boolean, boolean) IS 'A step that takes the first way whose condition holds; whens is a list made of when_holds().';

CREATE FUNCTION automation.choose(whens jsonb[], otherwise automation.step[] DEFAULT NULL, id text DEFAULT NULL, condition text DEFAULT NULL,
    continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'choose', 'whens', pg_catalog.to_jsonb(whens), 'otherwise', pg_catalog.to_jsonb(otherwise)))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, NULL, NULL, enabled);
END;
COMMENT ON FUNCTION automation.choose(jsonb[], automation.step[], text, text, boolean, boolean, boolean) IS 'A step that takes the first way whose condition holds.';

CREATE FUNCTION automation.repeat_count(count integer, steps automation.step[], id text DEFAULT NULL, condition text DEFAULT NULL,
    continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'repeat_count', 'count', count, 'steps', pg_catalog.to_jsonb(steps)))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, NULL, NULL, enabled);
END;
COMMENT ON FUNCTION automation.repeat_count(integer, automation.step[], text, text, boolean, boolean, boolean) IS 'A step that does its steps so many times.';

CREATE FUNCTION automation.repeat_count(count text, steps automation.step[], id text DEFAULT NULL, condition text DEFAULT NULL,
    continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'repeat_count', 'count', count, 'steps', pg_catalog.to_jsonb(steps)))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, NULL, NULL, enabled);
END;
COMMENT ON FUNCTION automation.repeat_count(text, automation.step[], text, text, boolean, boolean, boolean) IS 'A step that does its steps as many times as an expression says.';

CREATE FUNCTION automation.repeat_while(while text, steps automation.step[], id text DEFAULT NULL, condition text DEFAULT NULL,
    continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'repeat_while', 'while', "while", 'steps', pg_catalog.to_jsonb(steps)))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, NULL, NULL, enabled);
END;
COMMENT ON FUNCTION automation.repeat_while(text, automation.step[], text, text, boolean, boolean, boolean) IS 'A step that does its steps while a condition holds.';

CREATE FUNCTION automation.repeat_until(until text, steps automation.step[], id text DEFAULT NULL, condition text DEFAULT NULL,
    continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'repeat_until', 'until', until, 'steps', pg_catalog.to_jsonb(steps)))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, NULL, NULL, enabled);
END;
COMMENT ON FUNCTION automation.repeat_until(text, automation.step[], text, text, boolean, boolean, boolean) IS 'A step that does its steps until a condition holds, at least once.';

CREATE FUNCTION automation.for_each(items text, steps automation.step[], id text DEFAULT NULL, condition text DEFAULT NULL,
    continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'for_each', 'in', items, 'steps', pg_catalog.to_jsonb(steps)))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, NULL, NULL, enabled);
END;
COMMENT ON FUNCTION automation.for_each(text, automation.step[], text, text, boolean, boolean, boolean) IS 'A step that does its steps for each item of a list.';

CREATE FUNCTION automation.bulk(query text, steps automation.step[], rate double precision DEFAULT NULL, id text DEFAULT NULL,
    condition text DEFAULT NULL, continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL,
    timeout interval DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'bulk', 'query', query, 'rate', rate,
            'steps', pg_catalog.to_jsonb(steps)))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, timeout, NULL, enabled);
END;
COMMENT ON FUNCTION automation.bulk(text, automation.step[], double precision, text, text, boolean, boolean, interval, boolean) IS 'A step that does its steps for each row of a query, each row in a run of its own, and waits for all of them.';

CREATE FUNCTION automation.parallel(lanes automation.step[], id text DEFAULT NULL, condition text DEFAULT NULL,
    continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'parallel', 'lanes', pg_catalog.to_jsonb(lanes)))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, NULL, NULL, enabled);
END;
COMMENT ON FUNCTION automation.parallel(automation.step[], text, text, boolean, boolean, boolean) IS 'A step that does its steps side by side.';

CREATE FUNCTION automation.sequence(steps automation.step[], id text DEFAULT NULL, condition text DEFAULT NULL,
    continue_on_error boolean DEFAULT NULL, allow_failure boolean DEFAULT NULL, enabled boolean DEFAULT NULL)
RETURNS automation.step LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object('do', 'sequence', 'steps', pg_catalog.to_jsonb(steps)))
        || automation_internal.step_options(id, condition, continue_on_error, allow_failure, NULL, NULL, enabled);
END;
COMMENT ON FUNCTION automation.sequence(automation.step[], text, text, boolean, boolean, boolean) IS 'A step that does its steps one after the other, for a lane or to share a condition.';

CREATE FUNCTION automation.when_holds(condition text, steps automation.step[])
RETURNS jsonb LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_build_object('when', condition, 'steps', pg_catalog.to_jsonb(steps));
END;
COMMENT ON FUNCTION automation.when_holds(text, automation.step[]) IS 'One way of choose().';

CREATE FUNCTION automation.retry(max integer DEFAULT NULL, delays interval[] DEFAULT NULL, backoff text DEFAULT NULL,
                                 base interval DEFAULT NULL, factor numeric DEFAULT NULL, cap interval DEFAULT NULL,
                                 jitter numeric DEFAULT NULL)
RETURNS jsonb LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
        'max', COALESCE(max, CASE WHEN delays IS NULL THEN 3 END),
        'delays', (SELECT pg_catalog.jsonb_agg(automation_internal.duration(d.delay) ORDER BY d.place)
                     FROM pg_catalog.unnest(delays) WITH ORDINALITY AS d (delay, place)),
        'backoff', backoff, 'base', automation_internal.duration(base), 'factor', factor,
        'cap', automation_internal.duration(cap), 'jitter', jitter));
END;
COMMENT ON FUNCTION automation.retry(integer, interval[], text, interval, numeric, interval, numeric) IS 'How often, and when, a failed step is tried again: after 1, 5 and 30 seconds unless told otherwise.';

CREATE TYPE automation.definition AS (name text, version integer, status text, notices text[]);
COMMENT ON TYPE automation.definition IS 'What define() answers.';

CREATE FUNCTION automation_internal.define_document(document jsonb, owner text, wanted text)
RETURNS TABLE (name text, version integer, status text, notices text[])
LANGUAGE c AS 'MODULE_PATHNAME', 'define_document_wrapper';
COMMENT ON FUNCTION automation_internal.define_document(jsonb, text, text) IS 'What automation.define() calls.';

CREATE FUNCTION automation_internal.define_text(document text, owner text, wanted text)
RETURNS TABLE (name text, version integer, status text, notices text[])
LANGUAGE c AS 'MODULE_PATHNAME', 'define_text_wrapper';
COMMENT ON FUNCTION automation_internal.define_text(text, text, text) IS 'What automation.define() calls for a document in text form.';

CREATE FUNCTION automation_internal.text_or_object(given text)
RETURNS jsonb LANGUAGE sql IMMUTABLE
BEGIN ATOMIC
    SELECT CASE WHEN pg_catalog.ltrim(given) LIKE '{%' THEN given::jsonb ELSE pg_catalog.to_jsonb(given) END;
END;
COMMENT ON FUNCTION automation_internal.text_or_object(text) IS 'A text as documents hold it: in words, or an object.';

CREATE FUNCTION automation.define(name text DEFAULT NULL, trigger automation.trigger DEFAULT NULL,
                                  steps automation.step[] DEFAULT NULL, triggers automation.trigger[] DEFAULT NULL,
                                  description text DEFAULT NULL, condition text DEFAULT NULL, key text DEFAULT NULL,
                                  ordering text DEFAULT NULL, tenant text DEFAULT NULL, run_as text DEFAULT NULL,
                                  status text DEFAULT NULL, document text DEFAULT NULL,
                                  on_failure automation.step[] DEFAULT NULL, on_pause text DEFAULT NULL,
                                  max_steps integer DEFAULT NULL, timeout interval DEFAULT NULL,
                                  mode text DEFAULT NULL, max_runs integer DEFAULT NULL,
                                  max_executions text DEFAULT NULL, entity_lock boolean DEFAULT NULL,
                                  dedup jsonb DEFAULT NULL, priority integer DEFAULT NULL,
                                  retention text DEFAULT NULL, concurrency integer DEFAULT NULL,
                                  breaker integer DEFAULT NULL)
RETURNS SETOF automation.definition LANGUAGE sql
BEGIN ATOMIC
    -- one text in curly braces is a document
    SELECT d.name, d.version, d.status, d.notices
      FROM automation_internal.define_text(COALESCE($12, $1), $10, $11) AS d
     WHERE $12 IS NOT NULL
        OR ($2 IS NULL AND $3 IS NULL AND $4 IS NULL AND pg_catalog.ltrim($1) LIKE '{%')
 UNION ALL
    SELECT d.name, d.version, d.status, d.notices
      FROM automation_internal.define_document(
               pg_catalog.jsonb_strip_nulls(pg_catalog.jsonb_build_object(
                   'name', $1, 'description', $5, 'condition', $6, 'key', $7, 'ordering', $8, 'tenant', $9,
                   'on_failure', pg_catalog.to_jsonb($13), 'on_pause', $14, 'max_steps', $15,
                   'timeout', automation_internal.duration($16), 'mode', $17, 'max_runs', $18,
                   'max_executions', automation_internal.text_or_object($19), 'entity_lock', $20, 'dedup', $21,
                   'priority', $22, 'retention', automation_internal.text_or_object($23), 'concurrency', $24,
                   'breaker', CASE WHEN $25 = 0 THEN jsonb 'false' ELSE pg_catalog.to_jsonb($25) END))
               || pg_catalog.jsonb_build_object(
                   'triggers', COALESCE(pg_catalog.to_jsonb($4), '[]')
                               || CASE WHEN $2 IS NULL THEN '[]' ELSE pg_catalog.jsonb_build_array($2::jsonb) END,
                   'steps', COALESCE(pg_catalog.to_jsonb($3), '[]')),
               $10, $11) AS d
     WHERE NOT ($12 IS NOT NULL
        OR ($2 IS NULL AND $3 IS NULL AND $4 IS NULL AND pg_catalog.ltrim($1) LIKE '{%'));
END;
COMMENT ON FUNCTION automation.define(text, automation.trigger, automation.step[], automation.trigger[], text, text, text, text, text, text, text, text, automation.step[], text, integer, interval, text, integer, text, boolean, jsonb, integer, text, integer, integer) IS 'Defines an automation, or a new version of one; does nothing if nothing changed.';

CREATE FUNCTION automation.define(document jsonb)
RETURNS SETOF automation.definition LANGUAGE sql
BEGIN ATOMIC
    SELECT d.name, d.version, d.status, d.notices FROM automation_internal.define_document($1, NULL, NULL) AS d;
END;
COMMENT ON FUNCTION automation.define(jsonb) IS 'Defines an automation from its document.';
SET LOCAL search_path = automation, pg_temp;
