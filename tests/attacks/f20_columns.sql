-- attack: read columns of a table in the log that are not granted
-- attacker: viewer, who may SELECT the key and one harmless column of the table
-- must not happen: the event shows a column that was not granted
\i :attack_lib
\c attack owner_a
CREATE TABLE owner_a.staff (id int PRIMARY KEY, name text, salary int);
GRANT USAGE ON SCHEMA owner_a TO viewer, owner_b;
GRANT SELECT (id, name) ON owner_a.staff TO viewer, owner_b;
SELECT automation.watch_table('owner_a.staff');
INSERT INTO owner_a.staff VALUES (1, 'A', 900000);
UPDATE owner_a.staff SET salary = 900001;
\c attack viewer
SELECT attack.held(count(*) = 1, 'viewer reads the granted columns in the table') FROM (SELECT id, name FROM owner_a.staff) AS s;
SELECT attack.held(count(*) = 0, 'and no event of the table') FROM automation.events WHERE kind = 'staff';
\c attack owner_b
SELECT attack.refused($$ SELECT automation.define('b-staff', trigger => automation.on_changed('staff'), steps => ARRAY[automation.sql('SELECT 1')]) $$, '42501');
\c attack owner_a
-- SELECT without USAGE on the schema reads nothing either
GRANT SELECT ON owner_a.staff TO viewer;
REVOKE USAGE ON SCHEMA owner_a FROM viewer;
\c attack viewer
SELECT attack.refused('SELECT * FROM owner_a.staff', '42501');
SELECT attack.held(count(*) = 0, 'a table in a closed schema shows no event') FROM automation.events WHERE kind = 'staff';
