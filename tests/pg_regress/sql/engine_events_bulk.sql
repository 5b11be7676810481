-- A bulk step whose query cannot be evaluated is told of as begun once, like every step that the extension performs (R001-14).
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
CREATE SCHEMA engb;
SET search_path = engb, public;
CREATE TABLE effect (seq serial, what text);
SELECT name FROM automation.define('gb-work', trigger => automation.on_call(), steps => ARRAY[
    automation.bulk('SELECT {{ 1 / payload.zero }} AS n', ARRAY[automation.sql('SELECT 1')], id => 'rows')]);
SELECT name FROM automation.define('gb-hears',
    trigger => automation.on_event('automation.step.*', filter => 'payload.automation = ''gb-work'''),
    steps => ARRAY[automation.sql('INSERT INTO engb.effect (what) VALUES ({{ event.topic + '' '' + payload.step }})')]);
SELECT automation.drain() IS NOT NULL;
SELECT automation.start_run('gb-work', '{"zero": 0}') > 0;
SELECT automation.drain() IS NOT NULL;
SELECT what FROM effect ORDER BY seq;
SELECT status, error FROM automation.runs WHERE automation = 'gb-work';
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'gb-%';
SET client_min_messages = warning;
DROP SCHEMA engb CASCADE;
