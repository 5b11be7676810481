-- Defining automations: what is accepted, what comes back, and where an error points.
\set SHOW_CONTEXT never
CREATE SCHEMA def;
SET search_path = def, public;
CREATE TABLE orders (id int PRIMARY KEY, status text, total numeric, paid boolean, placed timestamptz);
SELECT automation.watch_table('orders', kind => 'd_orders');
CREATE FUNCTION reuse(args jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT args';

-- an upsert by name: the same again is nothing, a difference is a version
SELECT * FROM automation.define('d-one', trigger => automation.on_created('d_orders'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT * FROM automation.define('d-one', trigger => automation.on_created('d_orders'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT * FROM automation.define('d-one', trigger => automation.on_created('d_orders'), steps => ARRAY[automation.sql('SELECT 2')]);
SELECT * FROM automation.define('d-one', trigger => automation.on_created('d_orders'), steps => ARRAY[automation.sql('SELECT 2')], description => 'counts');
SELECT jsonb_pretty(automation.document('d-one'));
-- the document it gives back is accepted as it is, as jsonb and as text, and changes nothing
SELECT * FROM automation.define(automation.document('d-one'));
SELECT * FROM automation.define(automation.document('d-one')::text);
SELECT name, status, version, description, triggers, steps, owner FROM automation.automations WHERE name LIKE 'd-%';
-- several triggers, every kind of step and option
SELECT * FROM automation.define('d-all',
    triggers => ARRAY[
        automation.on_created('d_orders', id => 'made'),
        automation.on_updated('d_orders', columns => '{status}', filter => $$ new.status becomes 'paid' and new.total > 100 $$),
        automation.on_deleted('d_orders'), automation.on_changed('d_orders', filter => 'true'),
        automation.on_event('some.topic'), automation.on_call()],
    condition => 'event.topic is not null', key => 'event.id', ordering => 'none', status => 'draft',
    steps => ARRAY[
        automation.sql('SELECT {{ event.id }}::text AS x', id => 'first', timeout => '1 second'),
        automation.call('reuse', '{"a": steps.first.row.x}', condition => 'steps.first.count = 1'),
        automation.publish('my.topic', '{"a": 1}', continue_on_error => true),
        automation.notify('channel', 'event.id', enabled => false)]);
SELECT jsonb_pretty(automation.document('d-all'));

-- errors point into the user's own text
SELECT automation.define('d-bad', trigger => automation.on_updated('d_orders', filter => $$ new.status becoms 'paid' $$), steps => ARRAY[automation.sql('SELECT 1')]);
\echo :LAST_ERROR_SQLSTATE
SELECT automation.define('d-bad', trigger => automation.on_updated('d_orders', filter => $$ new.statos = 'paid' $$), steps => ARRAY[automation.sql('SELECT 1')]);
\echo :LAST_ERROR_SQLSTATE
SELECT automation.define('d-bad', trigger => automation.on_updated('d_orders', filter => $$ new.total $$), steps => ARRAY[automation.sql('SELECT 1')]);
\echo :LAST_ERROR_SQLSTATE
SELECT automation.define('d-bad', trigger => automation.on_updated('d_orders', filter => $$ lowr(new.status) = 'x' $$), steps => ARRAY[automation.sql('SELECT 1')]);
\echo :LAST_ERROR_SQLSTATE
SELECT automation.define('d-bad', trigger => automation.on_updated('d_orders', filter => $$ new.paid
   and (new.total > 1 $$), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('d-bad', trigger => automation.on_updated('d_ordrs'), steps => ARRAY[automation.sql('SELECT 1')]);
\echo :LAST_ERROR_SQLSTATE
SELECT automation.define('d-bad', trigger => automation.on_updated('d_orders', columns => '{statuss}'), steps => ARRAY[automation.sql('SELECT 1')]);
\echo :LAST_ERROR_SQLSTATE
-- SQL steps are prepared
SELECT automation.define('d-bad', trigger => automation.on_created('d_orders'), steps => ARRAY[automation.sql($$ UPDATE orders SET priority = 'high' WHERE id = {{ new.id }} $$)]);
\echo :LAST_ERROR_SQLSTATE
SELECT automation.define('d-bad', trigger => automation.on_created('d_orders'), steps => ARRAY[automation.sql($$ UPDAT orders SET total = 1 $$)]);
SELECT automation.define('d-bad', trigger => automation.on_created('d_orders'), steps => ARRAY[automation.sql($$ SELECT {{ new.idd }} $$)]);
SELECT automation.define('d-bad', trigger => automation.on_created('d_orders'), steps => ARRAY[automation.sql($$ SELECT {{ new.id $$)]);
SELECT automation.define('d-bad', trigger => automation.on_created('d_orders'), steps => ARRAY[automation.sql($$ SELECT 'größer',
   {{ new.id }} + nope $$)]);
SELECT automation.define('d-bad', trigger => automation.on_created('d_orders'), steps => ARRAY[automation.call('no_such_function')]);
\echo :LAST_ERROR_SQLSTATE
SELECT automation.define('d-bad', trigger => automation.on_created('d_orders'), steps => ARRAY[automation.sql('SELECT 1', id => 'x'), automation.sql('SELECT 2', id => 'x')]);
-- the whole
SELECT automation.define('', trigger => automation.on_created('d_orders'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('d-bad', trigger => automation.on_created('d_orders'), steps => ARRAY[automation.sql('SELECT 1')], ordering => 'sometimes');
SELECT automation.define('d-bad', trigger => automation.on_created('d_orders'), steps => ARRAY[automation.sql('SELECT 1')], status => 'running');
SELECT automation.define('d-bad', trigger => automation.on_created('d_orders'), steps => ARRAY[automation.sql('SELECT 1')], run_as => 'nobody_here');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.define('d-bad', trigger => 'text'::text, steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('{"name": "d-bad", "triggers": [}');
\echo :LAST_ERROR_SQLSTATE
SELECT automation.define('{"name": "d-bad", "trigers": [], "steps": [{"do": "sql", "sql": "SELECT 1"}], "triggers": [{"on": "call"}]}'::jsonb);
-- a failed define leaves the old version
SELECT automation.define('d-one', trigger => automation.on_created('d_orders'), steps => ARRAY[automation.sql('SELEC')]);
SELECT version FROM automation.automations WHERE name = 'd-one';

-- validate lists everything at once
SELECT path, line, col, sqlstate, message, hint FROM automation.validate('{"name": "d-v", "condition": "event.idd = 1", "triggers": [{"on": "updated", "kind": "d_orders", "filter": "new.paid and\n new.statos = 1"}], "steps": [{"do": "sql", "sql": "SELECT {{ new.idd }}"}, {"do": "call", "function": "reuse", "args": "nothing.here"}]}');
SELECT path, line, col, sqlstate, message, hint FROM automation.validate('{"name": "d-v", "condition": "event.id =", "triggers": [{"on": "updated", "kind": "d_orders", "filter": "new.paid and"}], "steps": [{"do": "sql", "sql": "SELECT {{ new.id"}]}');
SELECT count(*) >= 6 AS all_of_them FROM automation.validate('{"name": "d-v", "condition": "event.idd = 1", "triggers": [{"on": "updated", "kind": "d_orders", "filter": "new.statos = 1"}, {"on": "created", "kind": "nothing"}], "steps": [{"do": "sql", "sql": "SELEC 1"}, {"do": "sql", "sql": "SELECT {{ new.id"}, {"do": "call", "function": "nope"}]}');
SELECT * FROM automation.validate(automation.document('d-all'));
SELECT automation.document('nothing');
\echo :LAST_ERROR_SQLSTATE

SELECT automation.drop_automation('d-one'), automation.drop_automation('d-all');
SELECT automation.drop_automation('d-one');
\echo :LAST_ERROR_SQLSTATE
-- the name is free again
SELECT * FROM automation.define('d-one', trigger => automation.on_created('d_orders'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.drop_automation('d-one');
SELECT automation.unwatch_table('orders');
SET client_min_messages = warning;
DROP SCHEMA def CASCADE;
