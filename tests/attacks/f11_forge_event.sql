-- attack: run a stranger's automation by an event on its topic
-- attacker: mallory, an author who knows the topic that owner_a's automation listens to
-- must not happen: owner_a's automation runs on an event of mallory's, by emit, by a step, or by a grant that mallory alone gave
\i :attack_lib
CREATE TABLE owner_a.effect (who text);
ALTER TABLE owner_a.effect OWNER TO owner_a;
SET SESSION AUTHORIZATION owner_a;
SELECT FROM automation.define('a-paid', trigger => automation.on_event('payments.ok'), steps => ARRAY[
    automation.sql($$ INSERT INTO owner_a.effect VALUES ({{ payload.by }}) $$)]);
RESET SESSION AUTHORIZATION;
\c attack mallory
SELECT automation.emit('payments.ok', '{"by": "mallory"}');
SELECT FROM automation.grant_topic('owner_a', 'payments', 'listen');
SELECT FROM automation.grant_topic('mallory', 'payments', 'emit');
SELECT automation.emit('payments.ok', '{"by": "mallory, granted"}');
SELECT automation.emit('payments.ok', '{"by": "mallory, tenant"}', tenant => 'acme');
SELECT attack.refused($$ SELECT automation.grant_topic('mallory', 'payments', 'emit', of => 'owner_a') $$, '42501');
-- by a topic derived from a table that owner_a may read
CREATE TABLE mallory.bait (id int PRIMARY KEY, by text);
GRANT USAGE ON SCHEMA mallory TO owner_a;
GRANT SELECT ON mallory.bait TO owner_a;
SELECT FROM automation.watch_table('mallory.bait', kind => 'mallory_bait');
SELECT FROM automation.derive_event('mallory_bait', 'payments.ok', 'true');
INSERT INTO mallory.bait VALUES (1, 'mallory, derived');
-- by a step
SELECT FROM automation.define('m-forge', trigger => automation.on_event('m.go'), steps => ARRAY[automation.publish('payments.ok', '{"by": "mallory, step"}')]);
SELECT automation.emit('m.go');
\c attack postgres
SELECT attack.wait_for($$ SELECT count(*) = 1 FROM automation.events WHERE payload ->> 'by' = 'mallory, step' $$);
-- what owner_a emits comes after all of that
SET SESSION AUTHORIZATION owner_a;
SELECT automation.emit('payments.ok', '{"by": "owner_a"}');
RESET SESSION AUTHORIZATION;
SELECT attack.wait_for($$ SELECT count(*) > 0 FROM owner_a.effect WHERE who = 'owner_a' $$);
SELECT attack.wait_for($$ SELECT count(*) = 0 FROM automation.dispatches $$);
SELECT attack.held(array_agg(who) = '{owner_a}', 'owner_a''s automation ran for owner_a alone') FROM owner_a.effect;
