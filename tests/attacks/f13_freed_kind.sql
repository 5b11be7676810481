-- attack: run a stranger's automation on rows of one's own, by a kind that is free
-- attacker: mallory, an author with a table that owner_a may read, after owner_a's table was dropped, or before it is watched
-- must not happen: owner_a's automation runs for a row of mallory's
\i :attack_lib
CREATE TABLE owner_a.item (id int PRIMARY KEY, v text);
ALTER TABLE owner_a.item OWNER TO owner_a;
CREATE TABLE owner_a.effect (what text);
ALTER TABLE owner_a.effect OWNER TO owner_a;
CREATE TABLE mallory.bait (id int PRIMARY KEY, v text);
ALTER TABLE mallory.bait OWNER TO mallory;
GRANT USAGE ON SCHEMA mallory TO owner_a;
GRANT SELECT ON mallory.bait TO owner_a;
SET SESSION AUTHORIZATION owner_a;
SELECT FROM automation.watch_table('owner_a.item', kind => 'a_item');
SELECT FROM automation.define('a-item', trigger => automation.on_created('a_item'), steps => ARRAY[
    automation.sql($$ INSERT INTO owner_a.effect VALUES ({{ new.v }}) $$)]);
SELECT FROM automation.define('a-early', trigger => automation.on_event('a_later.created'), steps => ARRAY[
    automation.sql($$ INSERT INTO owner_a.effect VALUES ('early ' || {{ new.v }}) $$)]);
DROP TABLE owner_a.item;
\c attack mallory
SELECT attack.refused($$ SELECT automation.watch_table('mallory.bait', kind => 'a_item') $$, '42501');
SELECT attack.refused($$ SELECT automation.watch_table('mallory.bait', kind => 'a_later') $$, '42501');
SELECT attack.refused($$ SELECT automation.set_state('a_later', '1', '{"v": "forged"}') $$, '42501');
-- after the engine has forgotten the dropped table, and by the name of a table that is watched already
\c attack postgres
SELECT FROM automation.sweep();
\c attack mallory
SELECT attack.refused($$ SELECT automation.set_state('a_item', '1', '{"v": "forged"}') $$, '42501');
SELECT attack.refused($$ SELECT automation.watch_table('mallory.bait', kind => 'a_item') $$, '42501');
SELECT FROM automation.watch_table('mallory.bait', kind => 'm_bait');
SELECT attack.refused($$ SELECT automation.watch_table('mallory.bait', kind => 'a_item') $$, '42501');
INSERT INTO mallory.bait VALUES (1, 'forged');
-- the same owner makes the table anew, as a migration does
\c attack owner_a
CREATE TABLE owner_a.item (id int PRIMARY KEY, v text);
SELECT FROM automation.watch_table('owner_a.item', kind => 'a_item');
INSERT INTO owner_a.item VALUES (1, 'own');
SELECT attack.wait_for($$ SELECT count(*) > 0 FROM owner_a.effect $$);
SELECT attack.held(array_agg(what) = '{own}', 'it ran for owner_a''s row alone') FROM owner_a.effect;
