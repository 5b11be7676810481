-- What a tenant's automation sees of others' entities (R004-16): their state is null for it, and an entity that changes its tenant
-- is deleted for the one and created for the other, while automations without a tenant see the update.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv srcdir PG_ABS_SRCDIR
\set show :srcdir '/check/show.sql'
CREATE SCHEMA tm;
SET search_path = tm, public;
\i :show
SET timezone = 'UTC';
CREATE TABLE item (id int PRIMARY KEY, org text, status text, price numeric);
CREATE TABLE effect (what text);
SELECT automation.watch_table('item', kind => 'tm_item', tenant_column => 'org');
SELECT automation.derive_event('tm_item', 'tm.paid', 'new.status becomes ''paid''');
CREATE FUNCTION happened() RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM automation.drain();
    RETURN QUERY SELECT what FROM tm.effect ORDER BY what COLLATE "C";
    DELETE FROM tm.effect;
END $$;
CREATE FUNCTION says(word text DEFAULT '') RETURNS automation.step LANGUAGE sql AS
$$ SELECT automation.sql('INSERT INTO tm.effect (what) VALUES ({{ run.automation + ''' || word || ' '' + event.topic + '' '' + event.op + '' of '' + (event.tenant | default(''nobody''))
    + '': '' + (old | json) + '' -> '' + (new | json) + '' changed '' + (event.changed | json) }})', id => 'say') $$;
SELECT count(*) FROM unnest('{a,b,c}'::text[]) AS t, automation.define('tm-' || t, tenant => t,
    triggers => ARRAY[automation.on_changed('tm_item', id => 'change'), automation.on_event('tm.*', id => 'derived')], steps => ARRAY[says()]);
SELECT name FROM automation.define('tm-all', triggers => ARRAY[automation.on_changed('tm_item'), automation.on_event('tm.*')], steps => ARRAY[says()]);

-- an entity that changes its tenant
INSERT INTO item VALUES (1, 'a', 'new', 1.50), (2, NULL, 'new', 2);
SELECT happened();
UPDATE item SET org = 'b' WHERE id = 1;
SELECT happened();
-- with other fields as well; what is derived from it is derived for each of what it sees
UPDATE item SET org = 'a', status = 'paid', price = 2.5 WHERE id = 1;
SELECT happened();
-- from and to no tenant
UPDATE item SET org = 'c' WHERE id = 2;
SELECT happened();
UPDATE item SET org = NULL WHERE id = 2;
SELECT happened();
-- other changes are what they were
UPDATE item SET status = 'sent' WHERE id = 1;
SELECT happened();
-- the log has one event for each change
SELECT op, tenant, changed FROM automation.events WHERE kind = 'tm_item' ORDER BY id;
-- runs belong to the automation's tenant
SELECT DISTINCT automation, tenant FROM automation.runs WHERE automation IN ('tm-a', 'tm-b', 'tm-c') ORDER BY 1, 2;
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'tm-%';

-- triggers on one verb only, filters, and what a run sees after a wait and when it is retried
SELECT name FROM automation.define('tm-gone', tenant => 'a', trigger => automation.on_deleted('tm_item', filter => 'old.org = ''a'' and new is null'), steps => ARRAY[
    automation.wait_signal('tm-on'), says(' after a wait'), automation.sql('SELECT 1 / (SELECT count(*) FROM tm.item WHERE id = 99)')]);
SELECT name FROM automation.define('tm-new', tenant => 'b', trigger => automation.on_created('tm_item', filter => 'old is null'), steps => ARRAY[says()]);
SELECT name FROM automation.define('tm-upd', tenant => 'b', trigger => automation.on_updated('tm_item'), steps => ARRAY[says()]);
UPDATE item SET org = 'b' WHERE id = 1;
SELECT happened();
SELECT automation.signal('tm-on') > 0;
SELECT happened();
INSERT INTO item VALUES (99, NULL);
SELECT automation.retry_run(max(id), from_step => 'say') > 0 FROM automation.runs WHERE automation = 'tm-gone' AND status = 'failed';
SELECT happened();
DELETE FROM item WHERE id = 99;
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'tm-%';

-- start_with_event: the same views
SELECT count(*) FROM unnest('{a,b,c}'::text[]) AS t, automation.define('tm-by', tenant => t, trigger => automation.on_changed('tm_item'), steps => ARRAY[says()]);
SELECT automation.start_with_event('tm-by', '{"kind": "tm_item", "id": "7", "prev": {"id": 7, "org": "a", "status": "x"}, "next": {"id": 7, "org": "b", "status": "y"}}', tenant => t) > 0 FROM unnest('{a,b}'::text[]) AS t;
SELECT happened();
SELECT tried($$ SELECT automation.start_with_event('tm-by', '{"kind": "tm_item", "id": "7", "prev": {"id": 7, "org": "a"}, "next": {"id": 7, "org": "b"}}', tenant => 'c') $$);
SELECT count(automation.drop_automation(name, tenant => tenant)) FROM automation.automations WHERE name LIKE 'tm-%';

-- waits for events: of a tenant's automation, and of a tenant's run of one for all; also with a lookback
SELECT count(*) FROM unnest('{a,b,NULL}'::text[]) AS t, automation.define('tm-wait', tenant => t, trigger => automation.on_event('tm.begin'), steps => ARRAY[
    automation.wait_for_event('tm_item.*', id => 'w'), automation.sql($$ INSERT INTO tm.effect VALUES ({{ (event.tenant | default('nobody')) + ' heard ' + steps.w.event.topic + ': ' + (steps.w.event.prev | json) + ' -> ' + (steps.w.event.next | json) }}) $$)]);
SELECT count(automation.emit('tm.begin', tenant => t)) FROM unnest('{a,b,c,NULL}'::text[]) AS t;
SELECT happened();
UPDATE item SET org = 'a' WHERE id = 1;
SELECT happened();
SELECT tenant FROM automation.runs WHERE automation = 'tm-wait' AND status = 'waiting';
SELECT automation.cancel_run(id) FROM automation.runs WHERE automation = 'tm-wait' AND status = 'waiting';
SELECT count(automation.drop_automation(name, tenant => coalesce(tenant, ''))) FROM automation.automations WHERE name LIKE 'tm-%';
SELECT count(*) FROM automation.define('tm-wait', trigger => automation.on_event('tm.begin'), steps => ARRAY[
    automation.wait_for_event('tm_item.deleted', lookback => '1 hour', filter => 'event.id = ''1''', id => 'w'), automation.sql($$ INSERT INTO tm.effect VALUES ({{ event.tenant + ' heard ' + steps.w.event.topic + ' with ' + (steps.w.event.prev | json) }}) $$)]);
SELECT count(automation.emit('tm.begin', tenant => t)) FROM unnest('{b,c}'::text[]) AS t;
SELECT happened();
SELECT automation.cancel_run(id) FROM automation.runs WHERE automation = 'tm-wait' AND status = 'waiting';
SELECT automation.drop_automation('tm-wait');

-- the state of another tenant's entity: in conditions, in waits, in filters
SELECT count(*) FROM unnest('{a,b,NULL}'::text[]) AS t, automation.define('tm-read', tenant => t, trigger => automation.on_event('tm.read'), steps => ARRAY[
    automation.sql($$ INSERT INTO tm.effect VALUES ({{ (event.tenant | default('nobody')) + ' reads ' + (state.tm_item['1'].status | default('nothing')) + ', ' + (state.tm_item['2'].status | default('nothing')) }}) $$)]);
SELECT count(automation.emit('tm.read', tenant => t)) FROM unnest('{a,b,NULL}'::text[]) AS t;
SELECT happened();
SELECT count(automation.drop_automation(name, tenant => coalesce(tenant, ''))) FROM automation.automations WHERE name LIKE 'tm-%';
SELECT name FROM automation.define('tm-until', tenant => 'b', trigger => automation.on_event('tm.begin'), steps => ARRAY[
    automation.wait_until('state.tm_item[''1''].status = ''done'''), says()]);
SELECT name FROM automation.define('tm-filter', tenant => 'b', trigger => automation.on_event('tm.begin', filter => 'state.tm_item[''1''].status = ''sent'''), steps => ARRAY[says()]);
SELECT automation.emit('tm.begin', tenant => 'b') > 0;
SELECT happened();
UPDATE item SET status = 'done' WHERE id = 1;
SELECT happened();
SELECT automation, status FROM automation.runs WHERE automation IN ('tm-until', 'tm-filter') ORDER BY automation;
UPDATE item SET org = 'b' WHERE id = 1;
SELECT happened();
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'tm-%';

-- what is held for a while for one tenant is not held when the entity has left
SELECT automation.set_clock('2030-01-01 12:00:00+00') IS NOT NULL;
SELECT name FROM automation.define('tm-hold', tenant => 'b', trigger => automation.on_state('tm_item', 'status', to_value => 'open', hold_for => '5 minutes'), steps => ARRAY[says()]);
UPDATE item SET status = 'open' WHERE id = 1;
SELECT happened();
UPDATE item SET org = 'a' WHERE id = 1;
SELECT happened();
SELECT automation.advance('6 minutes') IS NOT NULL;
SELECT happened();
SELECT status, ended_reason, tenant FROM automation.runs WHERE automation = 'tm-hold';
SELECT automation.drop_automation('tm-hold');
-- windows count what the tenant sees
SELECT name FROM automation.define('tm-win', tenant => 'b', trigger => automation.on_deleted('tm_item', window_count => 2, window_within => '1 hour', window_per => 'event.tenant'), steps => ARRAY[says()]);
UPDATE item SET org = 'b' WHERE id = 1;
UPDATE item SET org = 'a' WHERE id = 1;
SELECT happened();
UPDATE item SET org = 'b' WHERE id = 1;
DELETE FROM item WHERE id = 1;
SELECT happened();
SELECT automation.drop_automation('tm-win');
SELECT automation.set_clock(NULL);
SELECT automation.unwatch_table('item');
DELETE FROM automation_internal.signal;
SET client_min_messages = warning;
DROP SCHEMA tm CASCADE;
