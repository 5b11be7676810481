-- Webhook steps (R004-13): what is saved, what is ordered, what can be wrong. Nothing is sent here: every message stays in
-- a transaction that is rolled back.
\set SHOW_CONTEXT never
CREATE SCHEMA hook;
SET search_path = hook, public;
CREATE TABLE orders (id int PRIMARY KEY, note text, total numeric);
SELECT automation.watch_table('orders');

-- the builder: an address, or the name of an endpoint
SELECT automation.webhook('https://api.example.com/orders/{{ new.id }}', $$ {"order": new.id} $$, method => 'put',
                          headers => '{"X-Source": "shop"}', delivery => 'at_most_once', timeout => '2 seconds', id => 'tell');
SELECT automation.webhook('erp', retry => automation.retry(2, '{1s,5s}'));
-- what is kept is one document, whatever its spelling
SELECT status, notices FROM automation.define('k-doc', trigger => automation.on_created('orders'), steps => ARRAY[
    automation.webhook('https://api.example.com/x', method => 'post', delivery => 'at_least_once', enabled => true)]);
SELECT jsonb_pretty(automation.document('k-doc') -> 'steps');
SELECT version, notices FROM automation.define('{"name": "k-doc", "triggers": [{"on": "created", "kind": "orders"}],
    "steps": [{"do": "webhook", "url": "https://api.example.com/x", "method": "POST"}]}'::jsonb);

-- what is wrong is told when it is saved, where it stands
CREATE FUNCTION refused(VARIADIC steps automation.step[]) RETURNS TABLE (path text, message text, hint text) LANGUAGE sql AS $$
    SELECT v.path, v.message, v.hint FROM automation.validate(jsonb_build_object('name', 'k-bad',
        'trigger', automation.on_created('orders')::jsonb, 'steps', to_jsonb(steps))) AS v WHERE v.severity = 'error' $$;
\x on
SELECT * FROM refused(automation.webhook('https://{{ new.note }}/x'), automation.webhook('https://a.example{{ new.note }}/x'),
    automation.webhook('https://a.example:{{ new.id }}/x'), automation.webhook('{{ new.note }}://a.example/x'),
    automation.webhook('file:///etc/passwd'), automation.webhook('https://me:secret@a.example/'), automation.webhook('https://a.example/../x'),
    automation.webhook('https://a.example/ x'), automation.webhook(E'https://a.example/\\x'), automation.webhook('https://'),
    automation.webhook(''), automation.webhook(NULL), automation.webhook('https://a.example:99999/'), automation.webhook('https://é.example/'));
SELECT * FROM refused(automation.webhook('https://a.example/{{ new.nothing }}'), automation.webhook('https://a.example/', 'new.nothing'),
    automation.webhook('https://a.example/', headers => '{"X": "{{ new.nothing }}"}'), automation.webhook('https://a.example/', '{"a": '));
SELECT * FROM refused(automation.webhook('https://a.example/', method => 'TRACE'), automation.webhook('https://a.example/', '{}', method => 'GET'),
    automation.webhook('https://a.example/', delivery => 'exactly_once'), automation.webhook('https://a.example/', timeout => '1 hour'),
    automation.webhook('https://a.example/', timeout => '-1 second'), automation.webhook('https://a.example/', retry => '1000'),
    automation.webhook('https://a.example/', secret => ''));
SELECT * FROM refused(automation.webhook('https://a.example/', headers => '[]'), automation.webhook('https://a.example/', headers => '{"A B": "c"}'),
    automation.webhook('https://a.example/', headers => '{"": "c"}'), automation.webhook('https://a.example/', headers => '{"Host": "b.example"}'),
    automation.webhook('https://a.example/', headers => '{"WEBHOOK-signature": "v1,x"}'), automation.webhook('https://a.example/', headers => '{"X": "a\r\nY: b"}'),
    automation.webhook('https://a.example/', headers => '{"X": 7}'), automation.webhook('https://a.example/', headers => '{"X": "1", "x": "2"}'),
    automation.webhook('https://a.example/', headers => '{"Content-Length": "0"}'));
SELECT * FROM refused(automation.webhook('no-such-endpoint'), automation.webhook('https://a.example/', secret => 'no-such-secret'),
    automation.webhook('https://a.example/', headers => '{"Authorization": {"secret": "no-such-secret"}}'));
\x off
-- a name that is nearly there
SELECT automation.set_endpoint('warehouse', 'https://warehouse.example/hook');
SELECT hint FROM refused(automation.webhook('warehous'));

-- what a step orders (R004-4, R004-13)
SELECT automation.drop_automation('k-doc');
CREATE VIEW ordered AS
SELECT o.step, o.endpoint, o.url, o.method, o.headers,
       regexp_replace(regexp_replace(o.body, '"event_id": \d+', '"event_id": N'), '"occurred_at": "[^"]+Z"', '"occurred_at": "T"') AS body, o.secret, o.delivery, o.timeout_ms, o.max_attempts AS max, o.backoff, o.state,
       o.attempt, o.owner::regrole, o.tenant
  FROM automation_internal.outbox AS o ORDER BY o.id;
SELECT automation.set_endpoint('erp', 'https://erp.example/in', headers => '{"X-Source": "shop", "x-kind": "order"}', timeout => '1.5 seconds', max_attempts => 9);
SELECT status FROM automation.define('k-tell', trigger => automation.on_created('orders'), steps => ARRAY[
    automation.webhook('https://api.example.com/orders/{{ new.id }}?note={{ new.note }}', id => 'plain'),
    automation.webhook('https://api.example.com/orders', $$ {"order": new.id, "total": new.total, "note": "{{ new.note }}!"} $$, method => 'PATCH',
                       headers => '{"X-Note": "{{ new.note }}"}', delivery => 'at_most_once', timeout => '30 seconds',
                       retry => automation.retry(2, '{1s,5s}'), id => 'full'),
    automation.webhook('erp', 'new.note', headers => '{"X-Kind": "note", "Content-Type": "text/plain"}', id => 'named'),
    automation.webhook('erp', method => 'delete', timeout => '7 seconds', retry => '{"max": 1, "backoff": "exponential", "base": "1 minute"}', id => 'gone'),
    automation.webhook('erp', condition => 'new.total > 100', id => 'not'),
    automation.sql('SELECT {{ steps.plain.message_id }} LIKE ''msg\_%'' AS told, {{ steps.plain.delivery_id }} > 0 AS numbered', id => 'after')]);
BEGIN;
INSERT INTO orders VALUES (1, 'a/b&c=d', 12.50);
SELECT automation.drain();
\x on
SELECT * FROM ordered;
\x off
SELECT step, status, result - 'message_id' - 'delivery_id' AS rest, result ->> 'message_id' ~ '^msg_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' AS named
  FROM automation.run_steps WHERE kind = 'webhook' ORDER BY run_id, seq;
SELECT result -> 'row' FROM automation.run_steps WHERE step = 'after' AND result -> 'row' ? 'told';
-- people see where it goes, not all of the address
SELECT automation, step, endpoint, host, state, attempt, last_status, last_error, ended_at, next_at IS NOT NULL AS due FROM automation.deliveries ORDER BY id;
-- an id of its own for each message
SELECT count(DISTINCT message_id) FROM automation.deliveries;
ROLLBACK;
SELECT count(*) FROM automation_internal.outbox;

-- values are values: whatever they hold, the address, the headers and the form of the body stay what they were
CREATE TABLE tried (n int, note text);
INSERT INTO tried VALUES (1, E'x\r\nHost: evil.example'), (2, '..'), (3, '.'), (4, '@evil.example/'), (5, '", "admin": true, "x": "'), (6, '%2e%2e'),
    (7, '#?&/\'), (8, 'ü'), (9, ''), (10, NULL), (11, repeat('x', 9000)), (12, '{{ new.id }}'), (13, E'tab\there'), (14, '$1'), (15, '://');
SELECT status FROM automation.define('k-tell', trigger => automation.on_created('orders'), steps => ARRAY[
    automation.webhook('https://api.example.com/a/{{ new.note }}/b', $$ {"note": new.note} $$, id => 'path', allow_failure => true),
    automation.webhook('https://api.example.com/a', $$ {} $$, headers => '{"X-Note": "<{{ new.note }}>"}', id => 'header', allow_failure => true)]);
BEGIN;
INSERT INTO orders SELECT n, note FROM tried;
SELECT automation.drain();
SELECT split_part(r.entity, ':', 2) AS n, s.step, left(coalesce(s.error, replace(o.url, 'https://api.example.com/a', '')), 80) AS outcome, left(o.headers ->> 'X-Note', 20) AS header, left(o.body, 50) AS body
  FROM automation.run_steps AS s JOIN automation.runs AS r ON r.id = s.run_id LEFT JOIN automation_internal.outbox AS o ON o.id = (s.result ->> 'delivery_id')::bigint
 WHERE r.automation = 'k-tell' ORDER BY split_part(r.entity, ':', 2)::int, s.seq;
ROLLBACK;

-- a body has an end
SELECT status FROM automation.define('k-long', trigger => automation.on_event('k.long'), steps => ARRAY[
    automation.webhook('https://api.example.com/a', $$ {"a": payload.note, "b": payload.note} $$)]);
BEGIN;
SELECT automation.emit('k.long', jsonb_build_object('note', repeat('x', 500000))) > 0 AS emitted;
SELECT automation.emit('k.long', jsonb_build_object('note', repeat('x', 530000))) > 0 AS emitted;
SELECT automation.drain();
SELECT status, sqlstate, message, detail, hint FROM automation.runs WHERE automation = 'k-long' ORDER BY id;
SELECT length(body) FROM automation_internal.outbox;
ROLLBACK;

-- a step that fails later takes nothing back; one that is rolled back does
SELECT status FROM automation.define('k-fail', trigger => automation.on_event('k.fail'), steps => ARRAY[
    automation.webhook('https://api.example.com/before'), automation.sql('SELECT 1 / 0')],
    on_failure => ARRAY[automation.webhook('https://api.example.com/failed', $$ {"error": error.message} $$)]);
BEGIN;
SELECT automation.emit('k.fail', '{}', tenant => 'acme') > 0 AS emitted;
SELECT automation.drain();
SELECT url, tenant, body FROM ordered WHERE url LIKE '%failed';
SELECT url FROM ordered;
ROLLBACK;

-- one message for each item and each row, each with an id of its own
SELECT status FROM automation.define('k-many', trigger => automation.on_event('k.many'), steps => ARRAY[
    automation.for_each('payload.items', ARRAY[automation.webhook('https://api.example.com/items/{{ repeat.item }}', $$ {"n": repeat.index} $$, id => 'each')]),
    automation.bulk('SELECT n FROM generate_series(1, 2) AS n', ARRAY[automation.webhook('https://api.example.com/rows/{{ item.n }}', $$ {"n": item.n} $$, id => 'row')]),
    automation.parallel(ARRAY[automation.webhook('https://api.example.com/left', '{}', id => 'left'), automation.webhook('https://api.example.com/right', '{}', id => 'right')])]);
BEGIN;
SELECT automation.emit('k.many', '{"items": ["a", "b"]}') > 0 AS emitted;
SELECT automation.drain() > 0 AS ran;
SELECT status FROM automation.runs WHERE automation = 'k-many' AND parent IS NULL;
SELECT url, body FROM ordered ORDER BY url;
SELECT count(DISTINCT message_id) FROM automation_internal.outbox;
ROLLBACK;

-- an endpoint that is gone, or disabled, fails the step
SELECT automation.set_endpoint('old', 'https://old.example/');
SELECT status FROM automation.define('k-old', trigger => automation.on_event('k.old'), steps => ARRAY[automation.webhook('old')]);
BEGIN;
UPDATE automation_internal.endpoint SET disabled_at = now(), disabled_reason = 'it answered 410 Gone' WHERE name = 'old';
SELECT notices FROM automation.define('k-old2', trigger => automation.on_event('k.old2'), steps => ARRAY[automation.webhook('old', id => 's')]);
SELECT automation.emit('k.old') > 0 AS emitted;
SELECT automation.drain();
SELECT name, url, disabled_at IS NOT NULL AS disabled, disabled_reason FROM automation.endpoints WHERE name = 'old';
-- set again, it works again
SELECT automation.set_endpoint('old', 'https://old.example/');
SELECT name, disabled_at, disabled_reason FROM automation.endpoints WHERE name = 'old';
SELECT automation.emit('k.old') > 0 AS emitted;
SELECT automation.drain();
SELECT automation.drop_endpoint('old'), automation.drop_endpoint('old');
SELECT automation.emit('k.old') > 0 AS emitted;
SELECT automation.drain();
SELECT status, sqlstate, message, detail, hint FROM automation.runs WHERE automation = 'k-old' ORDER BY id;
SELECT count(*) FROM automation_internal.outbox;
ROLLBACK;

SELECT automation.drop_automation(name) FROM automation.automations WHERE name LIKE 'k-%';
SELECT automation.drop_endpoint(name) FROM automation.endpoints;
SELECT automation.unwatch_table('orders');
SET client_min_messages = warning;
DROP SCHEMA hook CASCADE;
