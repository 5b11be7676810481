-- Triggers that look at what a change does: transitions of a field, numbers that come into a range; and what is refused
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
CREATE SCHEMA trig;
SET search_path = trig, public;
CREATE TABLE item (id int PRIMARY KEY, status text, n numeric, doc jsonb);
CREATE TABLE effect (seq serial, what text);
SELECT automation.watch_table('item', kind => 't_item');
CREATE FUNCTION said(what text) RETURNS automation.step LANGUAGE sql AS
$$ SELECT automation.sql(format('INSERT INTO trig.effect (what) VALUES (%L || {{ event.id }})', what || ' ')) $$;
CREATE FUNCTION happened() RETURNS text LANGUAGE plpgsql AS
$$ DECLARE told text; BEGIN
    PERFORM automation.drain();
    SELECT string_agg(what, ', ' ORDER BY what) INTO told FROM trig.effect;
    DELETE FROM trig.effect;
    RETURN told;
END $$;

-- a field goes from one value to another (R000-29, Home Assistant's state trigger)
SELECT name FROM automation.define('t-from-to', trigger => automation.on_state('t_item', 'status', from_value => 'new', to_value => 'paid'), steps => ARRAY[said('from-to')]);
SELECT name FROM automation.define('t-any', trigger => automation.on_state('t_item', 'status'), steps => ARRAY[said('any')]);
SELECT name FROM automation.define('t-not', trigger => automation.on_state('t_item', 'status', not_to => '{paid,void}'), steps => ARRAY[said('not')]);
SELECT name FROM automation.define('t-one', trigger => automation.on_state('t_item', 'status', entity => '2'), steps => ARRAY[said('one')]);
INSERT INTO item VALUES (1, 'new', 5), (2, 'new', 15);
SELECT happened();
UPDATE item SET status = 'paid';
SELECT happened();
UPDATE item SET n = n + 1;
SELECT happened();
UPDATE item SET status = 'held' WHERE id = 1;
SELECT happened();
UPDATE item SET status = 'paid' WHERE id = 1;
SELECT happened();
DELETE FROM item WHERE id = 2;
SELECT happened();
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 't-%';

-- a number comes into a range: on crossing, not on being there; strict bounds; what is no number is outside
SELECT name FROM automation.define('t-band', trigger => automation.on_numeric('t_item', 'n', above => 10, below => 20), steps => ARRAY[said('band')]);
SELECT name FROM automation.define('t-value', trigger => automation.on_numeric('t_item', value => 'new.n * 2', above => 10), steps => ARRAY[said('value')]);
INSERT INTO item VALUES (3, 'new', 15), (4, 'new', 1);
SELECT happened();
UPDATE item SET n = 16 WHERE id = 3;
SELECT happened();
UPDATE item SET n = 10 WHERE id = 4;
SELECT happened();
UPDATE item SET n = 11 WHERE id = 4;
SELECT happened();
UPDATE item SET n = NULL WHERE id = 3;
UPDATE item SET n = 12 WHERE id = 3;
SELECT happened();

-- what is refused
CREATE FUNCTION refused(document jsonb) RETURNS SETOF text LANGUAGE sql AS
$$ SELECT concat_ws(' ', path, sqlstate, message, hint) FROM automation.validate('{"name": "t-bad", "steps": [{"do": "sql", "sql": "SELECT 1"}]}' || document) $$;
SELECT refused('{"trigger": {"on": "state", "kind": "t_item", "field": "statsu"}}');
SELECT refused('{"trigger": {"on": "state", "kind": "t_itme", "field": "status"}}');
SELECT refused('{"trigger": {"on": "state", "kind": "t_item", "field": "status", "from": "a", "not_from": "b"}}');
SELECT refused('{"trigger": {"on": "numeric", "kind": "t_item", "field": "n", "above": 20, "below": 10}}');
SELECT refused('{"trigger": {"on": "numeric", "kind": "t_item", "field": "n"}}');
SELECT refused('{"trigger": {"on": "numeric", "kind": "t_item", "value": "new.m", "above": 1}}');
SELECT refused('{"trigger": {"on": "cron", "expr": "0 8 * * *", "timezone": "Europe/Berln"}}');
SELECT refused('{"trigger": {"on": "updated", "kind": "t_item", "window": {"count": 3, "within": "25 hours"}}}');
SELECT refused('{"trigger": {"on": "call"}, "mode": "singel"}');
SELECT refused('{"trigger": {"on": "call"}, "mode": "single", "max_runs": 0}');

SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 't-%';
SELECT automation.unwatch_table('item');
SET client_min_messages = warning;
DROP SCHEMA trig CASCADE;
