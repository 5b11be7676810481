-- Messages that have ended (R004-13): what people see of them, sending them again, dead letters, forgetting.
\set SHOW_CONTEXT never
CREATE ROLE regress_g_ann LOGIN;
CREATE ROLE regress_g_bob LOGIN;
SELECT automation.grant_usage('regress_g_ann', 'author'), automation.grant_usage('regress_g_bob', 'operator');
SELECT status FROM automation.define('g-tell', run_as => 'regress_g_ann', trigger => automation.on_event('g.x'), steps => ARRAY[
    automation.webhook('https://api.example.com/hook?key=canary', $$ {"a": "b"} $$, headers => '{"X": "1"}', delivery => 'at_most_once', retry => '3', id => 'tell')]);
-- what the courier does when a message has ended, by hand
CREATE FUNCTION ended(state text, status int DEFAULT NULL, error text DEFAULT NULL) RETURNS bigint LANGUAGE sql AS $$
    WITH gone AS (DELETE FROM automation_internal.outbox RETURNING *),
    letter AS (INSERT INTO automation_internal.dead_letter (at, run_id, event_id, automation_id, owner, reason, error, delivery)
               SELECT now(), g.run_id, g.event_id, g.automation_id, g.owner, 'undeliverable', json_build_object('message', ended.error), row_to_json(g)
                 FROM gone AS g WHERE ended.state = 'dead')
    INSERT INTO automation_internal.delivery (id, message_id, owner, automation_id, run_id, step, event_id, tenant, endpoint, url, method, headers, body,
           secret, delivery, timeout_ms, max_attempts, backoff, created_at, state, attempt, last_status, last_error, ended_at, response_status, response_body, duration_ms)
    SELECT g.id, g.message_id, g.owner, g.automation_id, g.run_id, g.step, g.event_id, g.tenant, g.endpoint, g.url, g.method, g.headers, g.body,
           g.secret, g.delivery, g.timeout_ms, g.max_attempts, g.backoff, g.created_at, ended.state, 2, ended.status, ended.error, now(), ended.status, 'answer', 12
      FROM gone AS g
 RETURNING id $$;
BEGIN;
SELECT automation.emit('g.x', '{}', tenant => 'acme') > 0 AS emitted;
SELECT automation.drain();
CREATE TEMPORARY TABLE first_one AS SELECT * FROM automation_internal.outbox;
-- one that is on its way is not sent again
SELECT id AS live FROM automation_internal.outbox \gset
\set VERBOSITY terse
SAVEPOINT s;
SELECT set_config('regress.id', :'live', true) IS NOT NULL AS kept;
DO $$ BEGIN PERFORM automation.redeliver(current_setting('regress.id')::bigint); EXCEPTION WHEN OTHERS THEN RAISE NOTICE '%', replace(sqlerrm, current_setting('regress.id'), 'N'); END $$;
\set VERBOSITY default
SELECT ended('delivered', 204) > 0 AS ended;
SELECT automation, step, host, state, attempt, next_at, last_status, last_error, ended_at IS NOT NULL AS ended, tenant, method, delivery, max_attempts, response_body, duration_ms
  FROM automation.deliveries;
-- her own, and only hers
SET ROLE regress_g_bob;
SELECT count(*) FROM automation.deliveries;
DO $$ BEGIN PERFORM automation.redeliver(current_setting('regress.id')::bigint); EXCEPTION WHEN OTHERS THEN RAISE NOTICE '%', replace(sqlerrm, current_setting('regress.id'), 'N'); END $$;
SET ROLE regress_g_ann;
SELECT automation.redeliver(id) > id AS new_id FROM automation.deliveries;
RESET ROLE;
-- all of it is as it was, its message id above all
SELECT n.id > f.id AS new_id, n.message_id = f.message_id AS same_message, (n.owner, n.automation_id, n.run_id, n.step, n.event_id, n.tenant, n.url, n.method, n.headers::text, n.body, n.delivery, n.timeout_ms, n.max_attempts, n.backoff::text)
     = (f.owner, f.automation_id, f.run_id, f.step, f.event_id, f.tenant, f.url, f.method, f.headers::text, f.body, f.delivery, f.timeout_ms, f.max_attempts, f.backoff::text) AS same, n.state, n.attempt, n.next_at <= clock_timestamp() AS due
  FROM automation_internal.outbox AS n, first_one AS f;
SELECT state, count(*) FROM automation.deliveries GROUP BY state ORDER BY state;
-- given up: a letter for a person (R004-13)
SELECT ended('dead', 500, 'it answered 500') > 0 AS ended;
SELECT automation, reason, error, delivery_id IS NOT NULL AS about_delivery FROM automation.dead_letters;
SET ROLE regress_g_bob;
SELECT count(*) FROM automation.dead_letters;
SET ROLE regress_g_ann;
SELECT automation.redrive(id) > 0 AS redriven FROM automation.dead_letters;
RESET ROLE;
SELECT count(*) FROM automation.dead_letters;
SELECT n.message_id = f.message_id AS same_message, n.headers::text = f.headers::text AND n.body = f.body AND n.backoff::text = f.backoff::text AS same, n.attempt, n.state FROM automation_internal.outbox AS n, first_one AS f;
-- sending the delivery again takes the letter along; what may have arrived can be sent again by a person
SELECT ended('dead', 500, 'it answered 500') > 0 AS ended;
SELECT automation.redeliver(max(id)) > 0 AS sent FROM automation.deliveries WHERE state = 'dead';
SELECT count(*) FROM automation.dead_letters;
SELECT ended('ambiguous', NULL, 'no answer') > 0 AS ended;
SELECT automation.redeliver(max(id)) > 0 AS sent FROM automation.deliveries WHERE state = 'ambiguous';
SELECT action, count(*) FROM automation.audit_log WHERE action LIKE 'delivery.%' GROUP BY action ORDER BY action;
-- it was one message all the time
SELECT count(DISTINCT message_id) AS messages, count(*) AS deliveries FROM automation.deliveries;
ROLLBACK;
-- what is not there
SELECT automation.redeliver(-1);
SELECT automation.redeliver(NULL);
SELECT automation.redeliver(9223372036854775807);
SELECT automation.redrive(-1);
-- a role that is dropped sends nothing any more
BEGIN;
SELECT automation.emit('g.x') > 0 AS emitted;
SELECT automation.drain();
SELECT automation.drop_automation('g-tell');
SELECT automation.revoke_usage('regress_g_ann');
DROP ROLE regress_g_ann;
SELECT automation.sweep() >= 0 AS swept;
SELECT automation, state, last_error FROM automation.deliveries;
SELECT count(*) FROM automation_internal.outbox;
ROLLBACK;

-- a message to an endpoint that has moved meanwhile goes where the endpoint is now; one whose endpoint is gone goes where it went
SELECT automation.set_endpoint('moving', 'https://before.example/', owner => 'regress_g_ann');
SELECT status FROM automation.define('g-move', run_as => 'regress_g_ann', trigger => automation.on_event('g.move'), steps => ARRAY[automation.webhook('moving')]);
BEGIN;
SELECT automation.emit('g.move') > 0 AS emitted;
SELECT automation.drain();
SELECT automation.set_endpoint('moving', 'https://after.example/', owner => 'regress_g_ann');
SELECT host, state FROM automation.deliveries;
SELECT ended('dead', 404, 'it answered 404') > 0 AS ended;
SELECT automation.redrive(id) > 0 AS redriven FROM automation.dead_letters;
SELECT host, state FROM automation.deliveries ORDER BY id;
SELECT ended('delivered', 200) > 0 AS ended;
SELECT automation.drop_endpoint('moving', owner => 'regress_g_ann');
SELECT automation.redeliver(min(id)) > 0 AS sent FROM automation.deliveries;
SELECT host, state FROM automation.deliveries ORDER BY id;
ROLLBACK;

-- forgetting: by whole days, like ended runs
SELECT c.relname ~ '^delivery(_attempt)?_d[0-9]+$' AS a_day, count(*) > 0 AS there FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
 WHERE i.inhparent IN ('automation_internal.delivery'::regclass, 'automation_internal.delivery_attempt'::regclass) GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'automation_internal.delivery'::regclass AND c.relname = 'delivery_d' || ((now() AT TIME ZONE 'UTC')::date - date '2000-01-01')
   AND EXISTS (SELECT FROM pg_depend AS d WHERE d.objid = c.oid AND d.deptype = 'e');
SELECT automation.drop_automation('g-tell'), automation.drop_automation('g-move');
SELECT automation.drop_endpoint('moving', owner => 'regress_g_ann');
SELECT automation.revoke_usage('regress_g_ann'), automation.revoke_usage('regress_g_bob');
DROP FUNCTION ended;
DROP ROLE regress_g_ann, regress_g_bob;
