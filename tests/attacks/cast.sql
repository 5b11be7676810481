-- The roles of every attack, made anew for each file, and their rights in a database that has the extension.
-- Run by the superuser in database "attack" before the file itself.
SET client_min_messages = error;
CREATE ROLE owner_a LOGIN;
CREATE ROLE owner_b LOGIN;
CREATE ROLE mallory LOGIN;
CREATE ROLE alice LOGIN;
CREATE ROLE op_b LOGIN;
CREATE ROLE viewer LOGIN;
CREATE ROLE adm LOGIN;
CREATE ROLE app LOGIN;
CREATE ROLE tabowner LOGIN;

CREATE EXTENSION automation_engine;
SELECT automation.grant_usage(r, 'author') FROM unnest('{owner_a,owner_b,mallory,alice}'::text[]) AS r;
SELECT automation.grant_usage('op_b', 'operator'), automation.grant_usage('viewer', 'viewer'), automation.grant_usage('adm', 'admin');

CREATE SCHEMA owner_a AUTHORIZATION owner_a;
CREATE SCHEMA owner_b AUTHORIZATION owner_b;
CREATE SCHEMA mallory AUTHORIZATION mallory;
CREATE SCHEMA alice AUTHORIZATION alice;
CREATE SCHEMA op_b AUTHORIZATION op_b;
CREATE SCHEMA viewer AUTHORIZATION viewer;
CREATE SCHEMA adm AUTHORIZATION adm;
CREATE SCHEMA app AUTHORIZATION app;
CREATE SCHEMA tabowner AUTHORIZATION tabowner;
