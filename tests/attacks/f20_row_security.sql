-- attack: read past row security what the log keeps of a table
-- attacker: viewer and owner_b, who may SELECT the table and are shown none of its rows by its policies
-- must not happen: keys, names of changed columns, or values captured before row security was enabled are shown
\i :attack_lib
\c attack owner_a
CREATE TABLE owner_a.early (id text PRIMARY KEY, v text);
CREATE TABLE owner_a.parts (id text, v text, PRIMARY KEY (id)) PARTITION BY LIST (id);
CREATE TABLE owner_a.parts_all PARTITION OF owner_a.parts DEFAULT;
GRANT USAGE ON SCHEMA owner_a TO viewer, owner_b, app;
GRANT SELECT ON owner_a.early, owner_a.parts TO viewer, owner_b;
GRANT SELECT, INSERT, UPDATE ON owner_a.early TO app;
SELECT automation.watch_table('owner_a.early'), automation.watch_table('owner_a.parts');
INSERT INTO owner_a.early VALUES ('key-1', 'BEFORE-POLICY');
INSERT INTO owner_a.parts VALUES ('key-2', 'BEFORE-POLICY');
\c attack viewer
SELECT attack.held(count(*) = 2, 'before there is row security, the changes are shown') FROM automation.events WHERE next ->> 'v' = 'BEFORE-POLICY';
\c attack owner_b
SELECT automation.subscribe('#', 'told');
\c attack owner_a
ALTER TABLE owner_a.early ENABLE ROW LEVEL SECURITY;
ALTER TABLE owner_a.parts ENABLE ROW LEVEL SECURITY;
INSERT INTO owner_a.early VALUES ('key-3', 'x');
UPDATE owner_a.early SET v = 'y';

\c attack viewer
SELECT attack.held(count(*) = 0, 'the rows are hidden') FROM owner_a.early;
SELECT attack.held(count(*) = 0, 'nothing of the tables is shown, neither new nor old') FROM automation.events WHERE kind IN ('early', 'parts');
SET row_security = off;
SELECT attack.held(count(*) = 0, 'nor with row_security = off') FROM automation.events WHERE kind IN ('early', 'parts');
\c attack owner_a
SELECT attack.held(count(*) = 5, 'the table''s owner, who is not subject to the policies, sees the changes') FROM automation.events WHERE kind IN ('early', 'parts');
ALTER TABLE owner_a.early FORCE ROW LEVEL SECURITY;
SELECT attack.held(count(*) = 0, 'with FORCE the owner does not either') FROM automation.events WHERE kind = 'early';
\c attack postgres
SELECT attack.held(count(*) = 4, 'a superuser does') FROM automation.events WHERE kind = 'early';
ALTER ROLE viewer BYPASSRLS;
\c attack viewer
SELECT attack.held(count(*) = 4, 'and so does a role with BYPASSRLS') FROM automation.events WHERE kind = 'early';
\c attack postgres
ALTER ROLE viewer NOBYPASSRLS;
