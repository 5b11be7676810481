-- The mistakes people make in definitions: each is found when it is saved, and the error points into their text.
\set SHOW_CONTEXT never
CREATE SCHEMA mis;
SET search_path = mis, public;
CREATE TABLE orders (id int PRIMARY KEY, status text, total numeric, paid boolean, placed timestamptz, tags text[], doc jsonb, uid uuid, wait interval, secret text);
SELECT automation.watch_table('orders', kind => 'm_orders', ignore => '{secret}');
SELECT automation.set_state('m_sensor', 's1', '{"status": "on"}') IS NOT NULL AS sensor;
CREATE FUNCTION filtered(filter text) RETURNS text LANGUAGE sql
AS $$ SELECT notices::text FROM automation.define('m-bad', trigger => automation.on_updated('m_orders', filter => $1), steps => ARRAY[automation.sql('SELECT 1')], status => 'draft') $$;
CREATE FUNCTION stepped(step automation.step) RETURNS text LANGUAGE sql
AS $$ SELECT notices::text FROM automation.define('m-bad', trigger => automation.on_updated('m_orders'), steps => ARRAY[$1], status => 'draft') $$;

-- columns and their types
SELECT filtered('new.statsu = 1');
SELECT filtered('status = 1');
SELECT filtered('new.status > 5');
SELECT filtered($$ new.total = 'abc' $$);
SELECT filtered('new.paid = 1');
SELECT filtered($$ new.placed > 'yesterday' $$);
SELECT filtered('new.wait > 5');
SELECT filtered('new.tags = 1');
SELECT filtered($$ new.total in ['a', 2] $$);
SELECT filtered('new.status.foo = 1');
SELECT filtered($$ new.secret = 'x' $$);
SELECT filtered('state.m_orders[1].statuss = 1');
SELECT filtered('state.m_sensr.s1.status = 1');
-- what cannot be known is left to run time
SELECT filtered('new.doc.a.b > 1 and event.payload.x = 1 and state.m_sensor.s1.anything = 5');
-- not a condition
SELECT filtered('new.total + 1');
SELECT filtered('new.status');
SELECT filtered('steps.a.count = 1');
SELECT filtered('');
SELECT filtered('{{ new.paid }} and more');
-- structured ones
SELECT filtered('{"state": {"kind": "m_orders", "id": "1", "field": "statsu", "is": "x"}}');
SELECT filtered('{"state": {"kind": "m_orders", "id": "1", "field": "total", "is": "x"}}');
SELECT filtered('{"and": [{"state": {"kind": "m_sensor", "id": "1", "is": "x", "for": "soon"}}]}');
SELECT filtered('{"or": ["new.paid", "new.statsu = 1"]}');
SELECT filtered('{"or": [{"time": {"after": "10:00", "timezone": "Europe/Berln"}}]}');
SELECT filtered('{"trigger": "updatd"}');
SELECT filtered('{"and": [{"numeric_state": {"value": "state.m_orders.1.totl", "above": 1}}]}');

-- statements
SELECT stepped(automation.sql('SELECT * FROM orders WHERE idd = {{ new.id }}'));
SELECT stepped(automation.sql(E'UPDATE orders\n   SET total = {{ new.total }},\n       größe = {{ new.status }}\n WHERE id = {{ new.id }}'));
SELECT stepped(automation.sql($$ SELECT '{{ new.id }}' $$));
SELECT stepped(automation.sql('SELECT "{{ new.status }}" FROM orders'));
SELECT stepped(automation.sql('SELECT 1 -- {{ new.id }}'));
SELECT stepped(automation.sql('SELECT $1'));
SELECT stepped(automation.sql('SELECT * FROM {{ new.status }}'));
SELECT stepped(automation.sql('SELECT 1; DELETE FROM orders WHERE id = {{ new.id }} AND nope'));
SELECT stepped(automation.sql('-- nothing'));
SELECT stepped(automation.sql('COPY orders TO STDOUT'));
-- payloads, topics, channels, functions
SELECT stepped(automation.notify('ch', '{"a": new.idd}'));
SELECT stepped(automation.notify('ch {{ new.idd }}', '{"a": new.id}'));
SELECT stepped(automation.notify('ch', '{"a": new.id'));
SELECT stepped(automation.publish('a..b', '{"a": new.id}'));
SELECT stepped(automation.publish('a.{{ new.status', '{"a": new.id}'));
SELECT stepped(automation.call('lower', 'new'));
SELECT stepped(automation.sql('SELECT 1', condition => 'new.total'));
SELECT automation.define('m-bad', trigger => automation.on_event('a..b'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('m-bad', trigger => automation.on_updated('m_orders'), key => 'new.idd', steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('m-bad', trigger => automation.on_updated('m_orders'), condition => 'new.total', steps => ARRAY[automation.sql('SELECT 1')]);

-- a document: the path says where, the caret what
SELECT automation.define('{"name": "m-bad", "steps": [{"do": "sql", "sql": "SELECT 1"}], "trigger": {"on": "updated", "kind": "m_orders", "filter": {"and": ["new.paid", {"state": {"kind": "m_sensor", "id": "s1", "is": "on", "fro": 1}}]}}}');
SELECT automation.define('{"name": "m-bad", "steps": [{"do": "notify", "channel": "x", "payload": {"a": {"b": ["{{ new.idd }}"]}}}], "trigger": {"on": "updated", "kind": "m_orders"}}');
SELECT severity, path, line, col, sqlstate, message, hint FROM automation.validate('{"name": "m-bad",
  "trigger": {"on": "updated", "kind": "m_orders", "filter": {"and": ["new.paid", {"or": ["new.total\n > ", true]}, {"state": {"kind": "m_sensor", "id": "s1", "is": "on", "fro": 1}}]}},
  "condition": [{"time": {"after": "9"}}],
  "steps": [{"do": "notify", "channel": "x", "payload": {"a": {"b": ["{{ new.id"]}}}, {"do": "sql", "sql": "SELECT\n {{ new.id }} + nope"}]}');

-- values get the type that the statement wants
CREATE TABLE typed (i int, u uuid, n numeric, t timestamptz, a text[], j jsonb, b boolean, d date, v interval);
SELECT name, status FROM automation.define('m-typed', trigger => automation.on_event('m.typed'), steps => ARRAY[
    automation.sql($$ INSERT INTO typed VALUES ({{ payload.i }}, {{ payload.u }}, {{ payload.n }}, {{ payload.t }}, {{ payload.a }}, {{ payload.j }}, {{ payload.b }}, {{ payload.d }}, {{ payload.v }}) $$),
    automation.sql($$ UPDATE typed SET b = NOT b WHERE i = {{ payload.i }} AND u = {{ payload.u }} AND n = {{ payload.n }} AND t = {{ payload.t }}
                         AND a = {{ payload.a }} AND j = {{ payload.j }} AND d = {{ payload.d }} AND v = {{ payload.v }} RETURNING i $$, id => 'found'),
    automation.sql($$ INSERT INTO typed (i) SELECT {{ steps.found.count }} + 40 $$)]);
SELECT automation.emit('m.typed', '{"i": 7, "u": "6f9619ff-8b86-d011-b42d-00c04fc964ff", "n": 12345678901234567890.123456789012345678901234567890, "t": "2026-01-05T10:00:00+02:00",
    "a": ["x", "it''s \"quoted\", {braces} and \\", null], "j": {"deep": [1, null, {"k": "v"}]}, "b": true, "d": "2026-02-28", "v": "PT15M"}') IS NOT NULL AS emitted;
SET TimeZone = 'UTC';
SELECT automation.drain() > 0 AS drained;
SELECT status, message FROM automation.runs WHERE automation = 'm-typed';
\x on
SELECT * FROM typed;
\x off
SELECT automation.drop_automation('m-typed'), automation.drop_automation('m-bad');
SELECT automation.unwatch_table('orders');
SET client_min_messages = warning;
DROP SCHEMA mis CASCADE;
