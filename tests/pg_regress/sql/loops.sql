-- The warning that automations can start each other in a circle, from the tables that their statements write; and that one
-- is started very often (R001-42, R001-55).
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
CREATE SCHEMA loo;
SET search_path = loo, public;
CREATE TABLE item (id int PRIMARY KEY, status text, note text, n int);
CREATE TABLE other (id int PRIMARY KEY, n int);
CREATE TABLE quiet (id int PRIMARY KEY);
CREATE TABLE parted (id int PRIMARY KEY, n int) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (100);
CREATE VIEW shown AS SELECT id, note FROM item;
SELECT automation.watch_table('item', kind => 'o_item');
SELECT automation.watch_table('other', kind => 'o_other');
SELECT automation.watch_table('parted', kind => 'o_parted');
-- what does one statement make of an automation on updates of the table?
CREATE FUNCTION warned(statement text, trigger jsonb DEFAULT '{"on": "updated", "kind": "o_item"}') RETURNS SETOF text LANGUAGE sql AS $$
    SELECT concat_ws(' | ', severity, path, sqlstate, message, hint)
      FROM automation.validate(jsonb_build_object('name', 'o-try', 'triggers', jsonb_build_array(trigger),
                                                  'steps', jsonb_build_array(jsonb_build_object('do', 'sql', 'sql', statement)))) $$;
SELECT warned('UPDATE item SET n = n + 1 WHERE id = {{ new.id }}');
SELECT warned('SELECT * FROM item WHERE id = {{ new.id }} FOR UPDATE');
SELECT warned('INSERT INTO item VALUES (1)');
SELECT warned('INSERT INTO item VALUES (1) ON CONFLICT (id) DO UPDATE SET n = 1');
SELECT warned('DELETE FROM item');
SELECT warned('INSERT INTO quiet VALUES (1)');
SELECT warned('WITH x AS (UPDATE item SET n = 1 RETURNING id) INSERT INTO quiet SELECT id FROM x');
SELECT warned('MERGE INTO item USING quiet AS q ON q.id = item.id WHEN MATCHED THEN UPDATE SET n = 2 WHEN NOT MATCHED THEN INSERT VALUES (q.id)');
SELECT warned('UPDATE shown SET note = ''x''');
SELECT warned('/* UPDATE item */ SELECT ''UPDATE item SET n = 1''');
SELECT warned('DELETE FROM item; UPDATE item SET n = 1');
SELECT warned('UPDATE parted_1 SET n = 1', '{"on": "updated", "kind": "o_parted"}');
-- a change of other columns than those the trigger asks for cannot start it
SELECT warned('UPDATE item SET note = ''x''', '{"on": "updated", "kind": "o_item", "columns": ["status", "n"]}');
SELECT warned('UPDATE item SET n = 1', '{"on": "updated", "kind": "o_item", "columns": ["status", "n"]}');
SELECT warned('UPDATE item SET note = ''x''', '{"on": "updated", "kind": "o_item", "filter": "new.status becomes ''paid'' and new.n > 1"}');
SELECT warned('UPDATE item SET status = ''x''', '{"on": "updated", "kind": "o_item", "filter": "new.status becomes ''paid'' and new.n > 1"}');
SELECT warned('UPDATE item SET note = ''x''', '{"on": "state", "kind": "o_item", "field": "status", "to": "paid"}');
SELECT warned('UPDATE item SET status = ''x''', '{"on": "state", "kind": "o_item", "field": "status", "to": "paid"}');
-- through an event that is derived
SELECT automation.derive_event('o_item', 'o.paid', 'new.status becomes ''paid''');
SELECT warned('UPDATE item SET status = ''x''', '{"on": "event", "topic": "o.*"}');
SELECT warned('UPDATE item SET note = ''x''', '{"on": "event", "topic": "o.*"}');
-- errors come alone
SELECT warned('UPDATE item SET m = 1');

-- a pair, seen from whichever comes second; and when it is changed so that it ends (R001-55)
SELECT notices FROM automation.define('o-ping', trigger => automation.on_updated('o_item'), steps => ARRAY[automation.sql('INSERT INTO other VALUES ({{ new.id }}) ON CONFLICT DO NOTHING')]);
SELECT notices FROM automation.define('o-pong', trigger => automation.on_changed('o_other'), steps => ARRAY[automation.sql('UPDATE item SET n = n + 1')]);
SELECT notices FROM automation.define('o-pong', trigger => automation.on_changed('o_other'), steps => ARRAY[automation.sql('SELECT 1'), automation.publish('o.done')]);
SELECT notices FROM automation.define('o-third', trigger => automation.on_event('o.done'), steps => ARRAY[automation.sql('UPDATE item SET n = n + 1')]);
-- a paused one closes no circle
SELECT ok FROM automation.pause('o-pong');
SELECT notices FROM automation.define('o-third', trigger => automation.on_event('o.done'), steps => ARRAY[automation.sql('UPDATE item SET n = n + 2')]);
-- what others have is not told
CREATE ROLE regress_o LOGIN;
GRANT USAGE ON SCHEMA loo TO regress_o;
GRANT ALL ON ALL TABLES IN SCHEMA loo TO regress_o;
SELECT automation.grant_usage('regress_o', 'author');
SELECT ok FROM automation.resume('o-pong');
SET ROLE regress_o;
SELECT notices FROM automation.define('o-mine', trigger => automation.on_changed('o_other'), steps => ARRAY[automation.sql('UPDATE item SET n = n + 1')]);
RESET ROLE;
SELECT notices FROM automation.define('o-ping', trigger => automation.on_updated('o_item'), steps => ARRAY[automation.sql('INSERT INTO other VALUES ({{ new.id }} + 1) ON CONFLICT DO NOTHING')]);
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'o-%';
-- a filter that asks again for what it gets (R001-32)
SELECT notices FROM automation.define('o-kind', trigger => automation.on_updated('o_item', filter => 'event.kind = ''o_item'''), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT notices FROM automation.define('o-kind', trigger => automation.on_updated('o_item', filter => 'event.kind = ''o_other'''), steps => ARRAY[automation.sql('SELECT 1')]);

-- more than 20 starts within a minute are worth a warning, once (R001-42); nothing is held back
SELECT name FROM automation.define('o-storm', trigger => automation.on_event('o.storm'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT count(automation.emit('o.storm')) FROM generate_series(1, 20);
SELECT automation.drain();
SELECT count(*) FROM automation.log WHERE code = 'automation_storm' AND automation = 'o-storm';
SELECT count(automation.emit('o.storm')) FROM generate_series(1, 30);
SELECT automation.drain();
SELECT level, message, detail FROM automation.log WHERE code = 'automation_storm' AND automation = 'o-storm';
SELECT count(*) FROM automation.runs WHERE automation = 'o-storm' AND status = 'completed';

SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'o-%';
SELECT automation.unwatch_table('item'), automation.unwatch_table('other'), automation.unwatch_table('parted');
SET client_min_messages = warning;
DROP SCHEMA loo CASCADE;
DROP OWNED BY regress_o;
DROP ROLE regress_o;
