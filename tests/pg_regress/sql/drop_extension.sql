-- DROP EXTENSION needs no CASCADE, takes its triggers along, and the tables go on as if nothing had been there.
CREATE DATABASE regress_drop_extension;
\set here :DBNAME
\c regress_drop_extension
SET client_min_messages = warning;
CREATE EXTENSION automation_engine;
CREATE TABLE item (id int PRIMARY KEY, v text);
CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (100);
SELECT automation.watch_table('item'), automation.watch_table('parts');
SELECT status FROM automation.define('x', trigger => automation.on_created('item'), steps => ARRAY[automation.sql('SELECT 1')]);
INSERT INTO item VALUES (1, 'a');
INSERT INTO parts VALUES (1);
SELECT automation.drain();
-- in the transaction that has just written
BEGIN;
INSERT INTO item VALUES (2, 'b');
DROP EXTENSION automation_engine;
INSERT INTO item VALUES (3, 'c');
COMMIT;
INSERT INTO item VALUES (4, 'd');
INSERT INTO parts VALUES (2);
SELECT count(*) FROM item;
SELECT tgrelid::regclass, tgname FROM pg_trigger WHERE NOT tgisinternal;
SELECT nspname FROM pg_namespace WHERE nspname = 'automation_internal';
SELECT count(*) FROM pg_proc WHERE probin LIKE '%automation_engine%';
-- and again
CREATE EXTENSION automation_engine;
SELECT automation.watch_table('item');
SELECT status FROM automation.define('x', trigger => automation.on_created('item'), steps => ARRAY[automation.sql('SELECT 2')]);
INSERT INTO item VALUES (5, 'e');
SELECT automation.drain();
SELECT automation, status, entity FROM automation.runs;
-- rolled back: everything is still there
BEGIN;
DROP EXTENSION automation_engine;
INSERT INTO item VALUES (6, 'f');
ROLLBACK;
INSERT INTO item VALUES (7, 'g');
SELECT automation.drain();
SELECT automation, status, entity FROM automation.runs ORDER BY id;
-- a schema that somebody prepared beforehand makes the installation fail
DROP EXTENSION automation_engine;
CREATE SCHEMA automation_internal;
CREATE EXTENSION automation_engine;
DROP SCHEMA automation_internal;
CREATE ROLE regress_squatter;
DROP SCHEMA IF EXISTS automation;
CREATE SCHEMA automation AUTHORIZATION regress_squatter;
DO $$
BEGIN
    CREATE EXTENSION automation_engine;
    RAISE WARNING 'installed into the schema of somebody else';
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'refused';
END $$;
DROP EXTENSION IF EXISTS automation_engine;
DROP SCHEMA automation;
DROP ROLE regress_squatter;
CREATE EXTENSION automation_engine;
-- it cannot be moved
ALTER EXTENSION automation_engine SET SCHEMA public;
\c :here
SET client_min_messages = warning;
DROP DATABASE regress_drop_extension;
