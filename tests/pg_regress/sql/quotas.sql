-- What one role may take from the others: quotas, slow filters, the log and how long it is kept.
\set SHOW_CONTEXT never
CREATE ROLE regress_greedy LOGIN;
SELECT automation.grant_usage('regress_greedy', 'author');

-- subscriptions: so many per role; one that is there already is not counted twice, and one that has ended makes room
SET automation_engine.max_subscriptions_per_role = 2;
SET ROLE regress_greedy;
SELECT automation.subscribe('a.*', 'feed') AS first, automation.subscribe('b.*', 'feed') AS second;
SELECT automation.subscribe('c.*', 'feed');
SELECT automation.subscribe('b.*', 'feed') AS again;
SELECT automation.unsubscribe('a.*', 'feed') AS ended, automation.subscribe('c.*', 'feed') AS instead;
SELECT automation.unsubscribe('b.*', 'feed') AS ended, automation.unsubscribe('c.*', 'feed') AS ended;
-- the role cannot give itself more
SET automation_engine.max_subscriptions_per_role = 1000;
SET automation_engine.max_automations_per_role = 1000;
RESET ROLE;
RESET automation_engine.max_subscriptions_per_role;

-- automations: so many per owner, whoever defines them; those that are there can be defined anew, dropped ones do not count
SET automation_engine.max_automations_per_role = 2;
SELECT status FROM automation.define('q_one', trigger => automation.on_event('q.never'), run_as => 'regress_greedy', steps => ARRAY[automation.sql('SELECT 1')]);
SET ROLE regress_greedy;
SELECT status FROM automation.define('q_two', trigger => automation.on_event('q.never'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT status FROM automation.define('q_three', trigger => automation.on_event('q.never'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT version FROM automation.define('q_two', trigger => automation.on_event('q.never'), steps => ARRAY[automation.sql('SELECT 2')]);
RESET ROLE;
SELECT status FROM automation.define('q_three', trigger => automation.on_event('q.never'), run_as => 'regress_greedy', steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.drop_automation('q_two');
SELECT status FROM automation.define('q_three', trigger => automation.on_event('q.never'), run_as => 'regress_greedy', steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.drop_automation('q_one'), automation.drop_automation('q_three');
RESET automation_engine.max_automations_per_role;

-- a filter that fails for each of many events is told of once a minute, with a count
SELECT status FROM automation.define('q_broken', trigger => automation.on_event('q.break', filter => '1 / payload.n > 0'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT count(automation.emit('q.break', '{"n": 0}')) FROM generate_series(1, 2000);
SELECT automation.drain() >= 0 AS worked;
SELECT count(automation.emit('q.break', '{"n": 0}')) FROM generate_series(1, 5);
SELECT automation.drain() >= 0 AS worked;
SELECT code, automation, times, message, detail FROM automation.log WHERE automation = 'q_broken';
SELECT filter_errors FROM automation.stat_automations WHERE automation = 'q_broken';
-- another reason is another entry
SELECT automation.emit('q.break', '{"n": []}') > 0 AS emitted;
SELECT automation.drain() >= 0 AS worked;
SELECT times, detail FROM automation.log WHERE automation = 'q_broken' ORDER BY times;
SELECT automation.drop_automation('q_broken');

-- a filter that uses up its budget again and again pauses its own automation, and no other on the same topic
SET ROLE regress_greedy;
SELECT status FROM automation.define('q_slow', steps => ARRAY[automation.sql('SELECT 1')],
    trigger => automation.on_event('q.text', filter => $$ matches(payload.t, '(?:[ab]{0,500}a[ab]{500})[^a-b]') $$));
RESET ROLE;
SELECT status FROM automation.define('q_quick', trigger => automation.on_event('q.text', filter => $$ payload.t like 'ab%' $$), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT count(automation.emit('q.text', jsonb_build_object('t', repeat('ab', 30000)))) FROM generate_series(1, 12);
SELECT automation.drain() >= 0 AS worked;
SELECT name, status, disabled_by, disable_details - 'disabled_at' AS disable_details FROM automation.automations WHERE name IN ('q_slow', 'q_quick') ORDER BY name;
SELECT automation, matched, filter_errors FROM automation.stat_automations WHERE automation IN ('q_slow', 'q_quick') ORDER BY 1;
SELECT code, times, message, detail FROM automation.log WHERE automation = 'q_slow' ORDER BY code;
SELECT role, action, automation FROM automation.audit_log WHERE automation = 'q_slow' AND action = 'automation.paused';
-- its owner can start it again, and a filter that is within its budget counts anew
SET ROLE regress_greedy;
SELECT automation.resume('q_slow');
SELECT automation.emit('q.text', '{"t": "ab"}') > 0 AS emitted;
RESET ROLE;
SELECT automation.drain() >= 0 AS worked;
SELECT status FROM automation.automations WHERE name = 'q_slow';
SELECT automation.drop_automation('q_slow'), automation.drop_automation('q_quick');

-- the log and the audit are kept for a while; nothing else goes with them
BEGIN;
SELECT count(*) AS letters FROM automation_internal.dead_letter \gset
INSERT INTO automation_internal.dead_letter (at, reason, error) VALUES (now() - interval '500 days', 'old', '{}');
TRUNCATE automation_internal.log, automation_internal.audit;
INSERT INTO automation_internal.log (at, level, code, message) SELECT now() - n * interval '10 days', 'info', 'old', n::text FROM generate_series(6, 1, -1) AS n;
INSERT INTO automation_internal.audit (at, role_id, role, action) SELECT now() - n * interval '150 days', 10, 'postgres', n::text FROM generate_series(4, 1, -1) AS n;
SELECT automation.sweep() >= 0 AS swept;
SELECT message FROM automation_internal.log WHERE code = 'old' ORDER BY id;
SELECT action FROM automation_internal.audit WHERE action ~ '^[0-9]$' ORDER BY id;
SELECT count(*) - :letters AS letters_kept FROM automation_internal.dead_letter;
-- and no more than so many entries for each owner, the newest
INSERT INTO automation_internal.log (level, code, owner, message)
SELECT 'info', 'flood', 'regress_greedy'::regrole, n::text FROM generate_series(1, 10050) AS n;
SELECT automation.sweep() >= 0 AS swept;
SELECT count(*), min(message::int) AS oldest FROM automation_internal.log WHERE code = 'flood';
ROLLBACK;
SELECT automation.revoke_usage('regress_greedy');
DROP ROLE regress_greedy;
