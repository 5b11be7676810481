-- Becoming active is checked from both sides (R003-16), with the reasons and messages of R003-17; a refusal changes nothing.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
CREATE SCHEMA lic;
SET search_path = lic, public;
CREATE TABLE item (id int PRIMARY KEY, n int);
SELECT automation.watch_table('item', kind => 'k_item');
-- steps and a trigger are needed (R003-16); each refusal has its reason and its message (R003-17); the four edges (R003-15)
SELECT status FROM automation.define('{"name": "k-empty", "triggers": [{"on": "call"}], "steps": [], "status": "draft"}'::jsonb);
SELECT * FROM automation.activate('k-empty');
SELECT status FROM automation.define('{"name": "k-idle", "triggers": [], "steps": [{"do": "sql", "sql": "SELECT 1"}], "status": "draft"}'::jsonb);
SELECT * FROM automation.activate('k-idle');
SELECT * FROM automation.activate('k-none');
SELECT status FROM automation.define('k', trigger => automation.on_updated('k_item', columns => '{n}'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT * FROM automation.revert_to_draft('k');
SELECT * FROM automation.pause('k');
-- what its trigger needs is gone meanwhile: the kind, a column (R003-16)
SELECT automation.unwatch_table('item');
SELECT * FROM automation.activate('k');
SELECT * FROM automation.resume('k');
SELECT automation.watch_table('item', kind => 'k_item', columns => '{id}');
SELECT * FROM automation.resume('k');
SELECT * FROM automation.revert_to_draft('k');
SELECT * FROM automation.activate('k');
SELECT status, disabled_by FROM automation.automations WHERE name LIKE 'k%' ORDER BY name;
-- and there again
SELECT automation.watch_table('item', kind => 'k_item');
SELECT * FROM automation.activate('k');
-- the same again is no change, and is recorded (R003-18)
SELECT * FROM automation.activate('k');
SELECT action, details FROM automation.audit_log WHERE automation = 'k' ORDER BY at;
SELECT topic, payload FROM automation.events WHERE kind = 'automation' AND entity_id = 'k' ORDER BY id;
-- counters are not touched by any of it (R003-21)
SELECT entered, completed, failed, cancelled, active FROM automation.stat_automations WHERE automation = 'k';
-- only who may (R003-20): for others it is not there
CREATE ROLE regress_k;
SELECT automation.grant_usage('regress_k', 'author');
SET ROLE regress_k;
SELECT * FROM automation.pause('k');
RESET ROLE;
SELECT automation.revoke_usage('regress_k');
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'k%';
SELECT automation.unwatch_table('item');
SET client_min_messages = warning;
DROP SCHEMA lic CASCADE;
DROP ROLE regress_k;
