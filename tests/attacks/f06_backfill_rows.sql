-- attack: read the rows of another role's backfill in automation.events
-- attacker: viewer, who may SELECT the table of the kind, but not the table that the backfill joins, and not past row security
-- must not happen: a row of the owner's query is shown to a role that may not act for the owner
\i :attack_lib
\c attack owner_a
CREATE TABLE owner_a.rls (id int PRIMARY KEY, v text);
CREATE TABLE owner_a.plain (id int PRIMARY KEY, v text);
CREATE TABLE owner_a.hidden (id int PRIMARY KEY, pin text);
ALTER TABLE owner_a.rls ENABLE ROW LEVEL SECURITY;
CREATE POLICY nobody ON owner_a.rls USING (false);
GRANT USAGE ON SCHEMA owner_a TO viewer, owner_b, adm, op_b;
GRANT SELECT ON owner_a.rls, owner_a.plain TO viewer, owner_b, adm, op_b;
INSERT INTO owner_a.rls VALUES (1, 'TOPSECRET-ROW');
INSERT INTO owner_a.plain VALUES (1, 'TOPSECRET-ROW');
INSERT INTO owner_a.hidden VALUES (1, 'PIN-4711');
SELECT automation.watch_table('owner_a.rls', kind => 'a_rls'), automation.watch_table('owner_a.plain', kind => 'a_plain');
SELECT automation.define('a-rls', trigger => automation.on_updated('a_rls'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.define('a-plain', trigger => automation.on_updated('a_plain'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.backfill('a-rls', 'SELECT r.*, h.pin FROM owner_a.rls r JOIN owner_a.hidden h USING (id)');
SELECT automation.backfill('a-plain', 'SELECT r.*, h.pin FROM owner_a.plain r JOIN owner_a.hidden h USING (id)');
SELECT automation.start_run('a-plain', '{"pin": "PIN-4711"}');
SELECT attack.wait_for('SELECT count(*) >= 3 FROM automation.runs WHERE status NOT IN (''pending'', ''running'')');
SELECT attack.held(count(*) >= 2, 'the owner sees the rows of the backfills') FROM automation.events WHERE payload ->> 'pin' = 'PIN-4711' AND op = 'started';

\c attack viewer
SELECT attack.held(count(*) = 0, 'viewer sees no row of the owner''s query') FROM automation.events WHERE events::text LIKE '%PIN-4711%' OR events::text LIKE '%TOPSECRET%';
SELECT attack.held(count(*) = 0, 'viewer sees no order') FROM automation.events WHERE op IN ('started', 'signalled', 'ended', 'moved');
\c attack owner_b
SELECT attack.held(count(*) = 0, 'another author sees no row of the owner''s query') FROM automation.events WHERE events::text LIKE '%PIN-4711%' OR events::text LIKE '%TOPSECRET%';
\c attack adm
SELECT attack.held(count(*) = 0, 'the admin tier sees no row of the owner''s query') FROM automation.events WHERE events::text LIKE '%PIN-4711%' OR events::text LIKE '%TOPSECRET%';
