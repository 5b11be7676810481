-- attack: make a stranger's automation deaf
-- attacker: mallory, an author with TRIGGER and SELECT on the table
-- must not happen: mallory ends the watch, renames the kind, hides columns, drops derived events, or does anything unseen
\i :attack_lib
CREATE TABLE owner_a.item (id int PRIMARY KEY, v text);
ALTER TABLE owner_a.item OWNER TO owner_a;
CREATE TABLE owner_a.effect (what text);
ALTER TABLE owner_a.effect OWNER TO owner_a;
GRANT USAGE ON SCHEMA owner_a TO mallory;
GRANT SELECT, TRIGGER ON owner_a.item TO mallory;
SET SESSION AUTHORIZATION owner_a;
SELECT FROM automation.watch_table('owner_a.item', kind => 'a_item');
SELECT FROM automation.derive_event('a_item', 'a.wow', 'true');
SELECT FROM automation.define('a-item', triggers => ARRAY[automation.on_created('a_item'), automation.on_event('a.wow')], steps => ARRAY[
    automation.sql($$ INSERT INTO owner_a.effect VALUES ({{ event.topic }} || ' ' || {{ new.v }}) $$)]);
SET SESSION AUTHORIZATION mallory;
SELECT attack.refused($$ SELECT automation.unwatch_table('owner_a.item') $$, '42501');
SELECT attack.refused($$ SELECT automation.watch_table('owner_a.item', kind => 'stolen') $$, '42501');
SELECT attack.refused($$ SELECT automation.watch_table('owner_a.item') $$, '42501');
SELECT attack.refused($$ SELECT automation.watch_table('owner_a.item', kind => 'a_item', ignore => '{v}') $$, '42501');
SELECT attack.refused($$ SELECT automation.watch_table('owner_a.item', kind => 'a_item', columns => '{id}') $$, '42501');
SELECT attack.refused($$ SELECT automation.watch_table('owner_a.item', kind => 'a_item', id_columns => '{v}') $$, '42501');
SELECT attack.refused($$ SELECT automation.watch_table('owner_a.item', kind => 'a_item', tenant_column => 'v') $$, '42501');
SELECT attack.refused($$ SELECT automation.drop_derived_event('a_item', 'a.wow') $$, '42501');
SELECT attack.refused($$ SELECT automation.derive_event('a_item', 'a.wow', 'false') $$, '42501');
SET SESSION AUTHORIZATION owner_a;
INSERT INTO owner_a.item VALUES (1, 'seen');
RESET SESSION AUTHORIZATION;
SELECT attack.wait_for($$ SELECT count(*) = 2 FROM owner_a.effect $$);
SELECT attack.held(array_agg(what ORDER BY what) = '{a.wow seen,a_item.created seen}', 'the automation hears and sees as before') FROM owner_a.effect;
SET SESSION AUTHORIZATION owner_a;
SELECT FROM automation.unwatch_table('owner_a.item');
SELECT attack.held(array_agg(action ORDER BY at) FILTER (WHERE action LIKE 'table.%') = '{table.watched,table.unwatched}', 'watching and its end are in the audit') FROM automation.audit_log;
