-- attack: go on learning keys of a table after the right to read it was revoked
-- attacker: owner_b, an author who could read the table when the automation was defined
-- must not happen: a change made after the REVOKE starts a run, or its key stands in a view; nor can the automation be activated again
\i :attack_lib
\c attack owner_a
CREATE TABLE owner_a.people (email text PRIMARY KEY, name text);
GRANT USAGE ON SCHEMA owner_a TO owner_b;
GRANT SELECT ON owner_a.people TO owner_b;
SELECT automation.watch_table('owner_a.people');
\c attack owner_b
SELECT automation.define('b-people', trigger => automation.on_changed('people'), steps => ARRAY[automation.sql('SELECT 1')], breaker => 0);
SELECT automation.define('b-window', trigger => automation.on_created('people', window_count => 1, window_within => '1 hour'), steps => ARRAY[automation.sql('SELECT 1')], breaker => 0);
\c attack owner_a
INSERT INTO owner_a.people VALUES ('known@example.com', 'A');
\c attack owner_b
SELECT attack.wait_for('SELECT count(*) = 2 FROM automation.runs WHERE status = ''completed'' AND entity = ''people:known@example.com''');
\c attack owner_a
REVOKE USAGE ON SCHEMA owner_a FROM owner_b;
INSERT INTO owner_a.people VALUES ('one@example.com', 'A');
GRANT USAGE ON SCHEMA owner_a TO owner_b;
REVOKE SELECT ON owner_a.people FROM owner_b;
GRANT SELECT (name) ON owner_a.people TO owner_b;
INSERT INTO owner_a.people VALUES ('two@example.com', 'A');
\c attack owner_b
SELECT attack.wait_for('SELECT sum(count) >= 2 FROM automation.stat_gates WHERE reason = ''no_rights''');
SELECT attack.held(count(*) = 0, 'no run names the key') FROM automation.runs WHERE entity LIKE '%two@%';
SELECT attack.held(count(*) = 0, 'no event of the table is shown: SELECT on some of its columns is not SELECT on it') FROM automation.events WHERE kind = 'people';
SELECT automation.pause('b-people');
SELECT attack.refused($$ SELECT automation.activate('b-people') $$, '42501');
SELECT attack.refused($$ SELECT automation.resume('b-people') $$, '42501');
SELECT attack.held(status = 'paused', 'it stays paused') FROM automation.automations WHERE name = 'b-people';
