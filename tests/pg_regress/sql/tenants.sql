-- Tenants (R001-16, R001-25, R002-2, R004-16, D19): nobody's events, waits, signals and derived events are another's; names
-- with an underscore are reserved; one after the other within a tenant; counters per tenant.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv srcdir PG_ABS_SRCDIR
\set show :srcdir '/check/show.sql'
CREATE SCHEMA ten;
SET search_path = ten, public;
\i :show
CREATE TABLE item (id int PRIMARY KEY, org text, status text);
CREATE TABLE effect (seq serial, what text);
SELECT automation.watch_table('item', kind => 'n_item', tenant_column => 'org');
SELECT automation.derive_event('n_item', 'n.paid', 'new.status becomes ''paid''');
CREATE FUNCTION happened() RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM automation.drain();
    RETURN QUERY SELECT what FROM ten.effect ORDER BY seq;
    DELETE FROM ten.effect;
END $$;
CREATE FUNCTION says() RETURNS automation.step LANGUAGE sql AS
$$ SELECT automation.sql('INSERT INTO ten.effect (what) VALUES ({{ run.automation + '' '' + event.topic + '' of '' + (event.tenant | default(''nobody'')) }})') $$;

-- reserved and malformed names, where an automation is defined, an event published, a signal sent (R001-16)
SELECT tried($$ SELECT * FROM automation.define('n-x', trigger => automation.on_call(), tenant => '_x', steps => ARRAY[automation.sql('SELECT 1')]) $$);
SELECT tried($$ SELECT * FROM automation.define('n-x', trigger => automation.on_call(), tenant => '_system', steps => ARRAY[automation.sql('SELECT 1')]) $$);
SELECT tried($$ SELECT * FROM automation.define('n-x', trigger => automation.on_call(), tenant => '', steps => ARRAY[automation.sql('SELECT 1')]) $$);
SELECT tried($$ SELECT automation.emit('n.x', tenant => '_x') $$);
SELECT tried($$ SELECT automation.signal('n-go', tenant => '_x') $$);

-- triggers on changes, on derived events, on what is published (R001-11, R001-16, R001-25, R004-16)
SELECT name FROM automation.define('n-acme', triggers => ARRAY[automation.on_changed('n_item'), automation.on_event('n.*')], tenant => 'acme', steps => ARRAY[says()]);
SELECT name FROM automation.define('n-other', triggers => ARRAY[automation.on_changed('n_item'), automation.on_event('n.*')], tenant => 'other', steps => ARRAY[says()]);
SELECT name FROM automation.define('n-all', triggers => ARRAY[automation.on_event('n.*')], steps => ARRAY[says()]);
INSERT INTO item VALUES (1, 'acme', 'new'), (2, 'other', 'new'), (3, NULL, 'new'), (4, '_system', 'new');
SELECT happened();
UPDATE item SET status = 'paid';
SELECT happened();
SELECT count(automation.emit('n.said', tenant => t)) FROM unnest('{acme,other,NULL}'::text[]) AS t;
SELECT happened();
-- what a run publishes belongs to its tenant, whether by a step or from SQL (R001-15)
SELECT name FROM automation.define('n-talk', trigger => automation.on_event('n.go'), steps => ARRAY[
    automation.publish('n.told'), automation.sql('SELECT automation.emit(''n.called'')'), automation.run('n-sub')]);
SELECT name FROM automation.define('n-sub', trigger => automation.on_call(), steps => ARRAY[says()]);
SELECT automation.emit('n.go', tenant => 'acme') > 0;
SELECT happened();
-- a run does not start another tenant's automation
SELECT automation.drop_automation('n-sub');
SELECT name FROM automation.define('n-sub', trigger => automation.on_call(), tenant => 'other', steps => ARRAY[says()]);
SELECT automation.emit('n.go', tenant => 'acme') > 0;
SELECT happened();
SELECT status, error, detail FROM automation.runs WHERE automation = 'n-talk' ORDER BY id DESC LIMIT 1;
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'n-%';

-- waits: a run of an automation for all belongs to the tenant of its event
SELECT name FROM automation.define('n-wait', trigger => automation.on_event('n.begin'), steps => ARRAY[
    automation.wait_for_event('n.paid', id => 'w'), automation.sql($$ INSERT INTO effect (what) VALUES ({{ event.tenant }} || ' woken by ' || {{ steps.w.event.tenant }}) $$)]);
SELECT automation.emit('n.begin', tenant => 'acme') > 0, automation.emit('n.begin', tenant => 'other') > 0;
SELECT happened();
UPDATE item SET status = 'new';
UPDATE item SET status = 'paid' WHERE org = 'other';
SELECT happened();
UPDATE item SET status = 'paid' WHERE org = 'acme';
SELECT happened();
-- also for what came before; what belongs to nobody is for all
SELECT name FROM automation.define('n-wait', trigger => automation.on_event('n.begin'), steps => ARRAY[
    automation.wait_for_event('n.paid', lookback => '1 hour', id => 'w'), automation.sql($$ INSERT INTO effect (what) VALUES ({{ event.tenant }} || ' woken by ' || {{ steps.w.event.tenant | default('nobody') }}) $$)]);
SELECT automation.emit('n.begin', tenant => 'third') > 0, automation.emit('n.begin', tenant => 'acme') > 0;
SELECT happened();
SELECT automation.cancel_run(id) FROM automation.runs WHERE automation = 'n-wait' AND status = 'waiting';
-- signals: one that is sent to a tenant is taken by no other's run; one from a run goes to its own tenant
SELECT name FROM automation.define('n-wait', trigger => automation.on_event('n.begin'), steps => ARRAY[
    automation.wait_signal('n-go', id => 'w'), automation.sql($$ INSERT INTO effect (what) VALUES ({{ event.tenant | default('nobody') }} || ' told ' || {{ steps.w.payload | json }}) $$)]);
SELECT automation.emit('n.begin', tenant => 'acme') > 0, automation.emit('n.begin', tenant => 'other') > 0;
SELECT happened();
SELECT automation.signal('n-go', '"first"', tenant => 'third') > 0;
SELECT happened();
SELECT automation.signal('n-go', '"second"', tenant => 'other') > 0;
SELECT happened();
SELECT name FROM automation.define('n-signal', trigger => automation.on_event('n.signal'), steps => ARRAY[automation.sql('SELECT automation.signal(''n-go'', ''"third"'')')]);
SELECT automation.emit('n.signal', tenant => 'other') > 0;
SELECT happened();
SELECT automation.emit('n.signal', tenant => 'acme') > 0;
SELECT happened();
DELETE FROM automation_internal.signal;

-- ordering => 'tenant': one queue per tenant (R002-2), whatever the entity
SELECT name FROM automation.define('n-fifo', trigger => automation.on_updated('n_item'), ordering => 'tenant', steps => ARRAY[says()]);
INSERT INTO item VALUES (11, 'acme'), (12, 'acme'), (13, 'other');
UPDATE item SET status = 'x' WHERE id > 10;
SELECT automation.route() > 0;
SELECT e.tenant, count(*), count(DISTINCT d.ordering_key) FROM automation_internal.dispatch AS d JOIN automation.events AS e ON e.id = d.event_id GROUP BY e.tenant ORDER BY e.tenant;
SELECT count(DISTINCT d.ordering_key) FROM automation_internal.dispatch AS d;
SELECT happened();

-- counters: by tenant, for an automation of one and for one that is for all; a run that waits is active
SELECT tenant, automation, entered, completed, failed, cancelled, skipped, active FROM automation.stat_tenants WHERE automation LIKE 'n-%';
SELECT automation.emit('n.begin', tenant => 'acme') > 0;
SELECT automation.drain() > 0;
SELECT tenant, automation, entered, active FROM automation.stat_tenants WHERE automation = 'n-wait' AND tenant = 'acme';
SELECT automation.cancel_run(id) FROM automation.runs WHERE automation = 'n-wait' AND status = 'waiting';
SELECT tenant, automation, entered, cancelled, active FROM automation.stat_tenants WHERE automation = 'n-wait' AND tenant = 'acme';

SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'n-%';
SELECT automation.unwatch_table('item');
SET client_min_messages = warning;
DROP SCHEMA ten CASCADE;
