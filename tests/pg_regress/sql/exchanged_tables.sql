-- A table that was rebuilt and exchanged by renaming: the new one is not captured. status() says so, and what watch_table()
-- advises works.
\set VERBOSITY default
\set SHOW_CONTEXT never
CREATE TABLE regress_x (id int PRIMARY KEY, n int);
SELECT automation.watch_table('regress_x');
CREATE TABLE regress_x_did (n int);
SELECT name FROM automation.define('x', trigger => automation.on_created('regress_x'), steps => ARRAY[
    automation.sql('INSERT INTO regress_x_did VALUES ({{ new.n }})')]);
-- renamed alone: it is captured on
ALTER TABLE regress_x RENAME TO regress_x_old;
SELECT item, status, detail FROM automation.status() WHERE item IN ('kind regress_x', 'table public.regress_x');
-- another takes over its name
CREATE TABLE regress_x (id int PRIMARY KEY, n int);
SELECT item, status, detail FROM automation.status() WHERE item IN ('kind regress_x', 'table public.regress_x');
INSERT INTO regress_x VALUES (1, 1);
SELECT automation.drain();
SELECT automation.watch_table('regress_x');
-- a role without a right on the table is not told of it
CREATE ROLE regress_x_viewer LOGIN;
SELECT automation.grant_usage('regress_x_viewer', 'viewer');
SET ROLE regress_x_viewer;
SELECT count(*) FROM automation.status() WHERE item LIKE 'table public.regress_x%';
RESET ROLE;
-- as advised
SELECT automation.unwatch_table('public.regress_x_old');
SELECT automation.watch_table('public.regress_x', kind => 'regress_x');
SELECT item, status, detail FROM automation.status() WHERE item IN ('kind regress_x', 'table public.regress_x');
INSERT INTO regress_x VALUES (2, 2);
SELECT automation.drain();
SELECT * FROM regress_x_did;
-- a kind with another name, exchanged within a transaction as a tool does it
CREATE TABLE regress_y (id int PRIMARY KEY);
SELECT automation.watch_table('regress_y', kind => 'regress_why');
CREATE TABLE regress_y_new (id int PRIMARY KEY);
BEGIN;
ALTER TABLE regress_y RENAME TO regress_y_old;
ALTER TABLE regress_y_new RENAME TO regress_y;
COMMIT;
SELECT item, status, detail FROM automation.status() WHERE item IN ('kind regress_why', 'table public.regress_y');
SELECT automation.watch_table('regress_y', kind => 'regress_why');
-- a table that took nobody's name over gets the hint of before
CREATE TABLE regress_z (id int PRIMARY KEY);
SELECT automation.watch_table('regress_z', kind => 'regress_why');
SELECT automation.unwatch_table('regress_y_old');
SELECT automation.unwatch_table('regress_x');
SELECT automation.drop_automation('x');
DROP TABLE regress_x, regress_x_old, regress_x_did, regress_y, regress_y_old, regress_z;
SELECT automation.revoke_usage('regress_x_viewer');
DROP ROLE regress_x_viewer;
