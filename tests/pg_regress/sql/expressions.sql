-- The expression language from SQL: values, what it refuses, and where an error points.
\set SHOW_CONTEXT never
SET TimeZone = 'UTC';
-- evaluate: exact numbers, times, changes
SELECT automation.evaluate('12345678901234567890123 + 1') AS exact, automation.evaluate('0.1 + 0.2 = 0.3') AS decimal,
       automation.evaluate('new.total * 2', '{"new": {"total": 12345678901234567890.123456789}}') AS digits;
\echo :LAST_ERROR_SQLSTATE
SELECT automation.evaluate($$ new.status becomes 'paid' and new.total > 100 $$, '{"new": {"status": "paid", "total": 250}, "old": {"status": "new"}}') AS becomes,
       automation.evaluate('new.missing.deeper') IS NULL AS missing_is_null,
       automation.evaluate('state.orders.42.status', '{"state": {"orders": {"42": {"status": "open"}}}}') AS state,
       automation.evaluate('15 minutes + 1 hour') AS duration;
SELECT automation.evaluate('foo.bar = 1', '{"foo": {"bar": 1}}') AS given_name;
SELECT automation.evaluate('foo.bar = 1');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.evaluate('nw.status');
SELECT automation.evaluate('new.a', '[1]');
SELECT automation.evaluate('');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.evaluate('1 / 0');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.evaluate('1e131071 * 100');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.evaluate($$ matches('a', '(') $$);
\echo :LAST_ERROR_SQLSTATE
SELECT automation.evaluate('lowr(new.a)');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.evaluate('lower(1, 2)');
SELECT automation.evaluate(E'new.a = 1\n  and new.b = = 2');
SELECT automation.evaluate($$ 'a' || 'b' $$);
\echo :LAST_ERROR_SQLSTATE
SELECT automation.evaluate('now() > 1');

-- extract_refs: exact, computed, nested, structured; what cannot be known is said
SELECT * FROM automation.extract_refs($$ state.orders[new.id].status = 'x' and health.systems[state.a.b.c].status = 'up' and health.system.load > 1 $$);
SELECT * FROM automation.extract_refs('{"and": [{"state": {"id": "db-1", "is": "up"}}, {"not": [{"numeric_state": {"value": "state.sensors.t1.celsius", "above": 20}}]}]}');
SELECT * FROM automation.extract_refs('state[new.kind][new.id].x = 1 and state.orders.7.y = 2');
SELECT * FROM automation.extract_refs('state.orders');
\echo :LAST_ERROR_SQLSTATE
SELECT * FROM automation.extract_refs('{"and": [{"state": {"id": "a", "is": "up", "fro": "1 minute"}}]}');
\echo :LAST_ERROR_SQLSTATE

-- topics
SELECT automation.match_topic('graph.node.*', 'graph.node.created') AS one, automation.match_topic('graph.node.*', 'graph.node.created.Skills') AS not_two,
       automation.match_topic('graph.#', 'graph') AS none, automation.match_topic('v1:cognition:*.created', 'v1:cognition:utterance.created') AS inside,
       automation.match_topic('graph.node.created.orders', 'orders.created') AS older_spelling, automation.match_topic('', 'anything') AS blank;
SELECT automation.match_topic('a..b', 'a');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.match_topic('a.b#', 'a');

-- who listens to what: every spelling finds its events, and each automation once
SELECT automation.drain() >= 0 AS nothing_is_left;
CREATE TABLE heard (who text, topic text);
SELECT count(*) FROM unnest(ARRAY['#', '', '*.created', 'x_kind.#', 'x_*.created', 'x_kind.created', 'graph.node.created.x_kind', 'graph.node.*.x_kind', '#.created', 'y_kind.*', 'x_kind.*.more'])
    WITH ORDINALITY AS p (pattern, n),
    automation.define('x-' || p.n, triggers => ARRAY[automation.on_event(p.pattern), automation.on_event('x.other')],
                      steps => ARRAY[automation.sql('INSERT INTO public.heard VALUES ({{ run.automation }}, {{ event.topic }})')]);
SELECT automation.set_state('x_kind', '1', '{"a": 1}') IS NOT NULL AS created, automation.emit('x.other') IS NOT NULL AS emitted;
SELECT automation.drain() > 0 AS drained;
SELECT topic, string_agg(who, ' ' ORDER BY who) FROM heard GROUP BY topic ORDER BY topic;
SELECT count(automation.drop_automation('x-' || n)) FROM generate_series(1, 11) AS n;
DROP TABLE heard;

-- JSON-Pointer filters
SELECT automation.match_filter('{"/a": {"eq": 1}, "/b/0": {"contains": "x%"}}', '{"a": 1.0, "b": ["ax%b"]}') AS both,
       automation.match_filter('{"/at": {"gt": "2026-01-01T00:00:00Z"}}', '{"at": "2026-01-01T01:30:00+01:00"}') AS instants,
       automation.match_filter('{"/n": {"neq": 1}}', '{}') AS missing_differs, automation.match_filter('{}', '{"x": 1}') AS everything;
SELECT automation.match_filter('{"total": {"gt": 5}}', '{}');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.match_filter('{"/total": {"gte": 5}}', '{}');
SELECT automation.match_filter('{"/total": {"gt": 5, "lt": 9}}', '{}');
SELECT automation.match_filter('{"/total": 5}', '{}');
SELECT automation.match_filter('[{"/a": {"eq": 1}}, {"or": ["payload.b =", true]}]', '{}');

-- next_fire: zones, daylight saving, fields, and what is no schedule
SELECT automation.next_fire('0 9 * * mon-fri', after => '2026-01-02 10:00Z');
SELECT automation.next_fire('30 2 * * *', 'Europe/Berlin', '2026-03-28 00:00Z', 3) AS skipped_time;
SELECT automation.next_fire('30 2 * * *', 'Europe/Berlin', '2026-10-24 12:00Z', 2) AS repeated_time;
SELECT automation.next_fire('*/20 * * * * *', after => '2026-01-01 00:00:05Z', n => 3) AS seconds;
SELECT automation.next_fire('0 0 L * *', after => '2028-02-01Z', n => 2) AS last_days;
SELECT count(*) FROM automation.next_fire('@hourly', n => 1000);
SELECT count(*) FROM automation.next_fire(NULL);
SELECT automation.next_fire('61 * * * *');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.next_fire('0 0 30 2 *');
SELECT automation.next_fire('0 0 * * mno');
SELECT automation.next_fire('* * * *');
SELECT automation.next_fire('@dialy');
SELECT automation.next_fire('@daily', 'Europe/Berln');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.next_fire('@daily', 'CET-ish');
SELECT automation.next_fire('@daily', n => 0);
\echo :LAST_ERROR_SQLSTATE
SELECT automation.next_fire('@daily', n => 1001);
SELECT automation.next_fire('@daily', after => 'infinity');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.next_fire('@daily', after => '294276-12-31');
\echo :LAST_ERROR_SQLSTATE
