-- The engine keeps texts in UTF-8: it refuses to be installed where the server keeps them otherwise, and leaves such databases alone.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\set home :DBNAME
CREATE DATABASE regress_latin1 TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C';
CREATE DATABASE regress_latin9 TEMPLATE template0 ENCODING 'LATIN9' LOCALE 'C';
CREATE DATABASE regress_win1252 TEMPLATE template0 ENCODING 'WIN1252' LOCALE 'C';
CREATE DATABASE regress_euc_jp TEMPLATE template0 ENCODING 'EUC_JP' LOCALE 'C';
CREATE DATABASE regress_sql_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C';
CREATE DATABASE regress_mule TEMPLATE template0 ENCODING 'MULE_INTERNAL' LOCALE 'C';
CREATE DATABASE regress_utf8 TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C';
\c regress_latin1
CREATE EXTENSION automation_engine;
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'automation%';
-- errors of other code keep their letters, the library being loaded
\encoding UTF8
DO $$ BEGIN RAISE EXCEPTION 'café' USING DETAIL = 'crème', HINT = 'brûlée'; END $$;
CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN RAISE EXCEPTION 'déjà vu'; END $$;
CALL p();
CREATE TABLE "é" (x text);
INSERT INTO "é" VALUES ('é');
DROP TABLE "ü";
SELECT encode(convert_to(x, 'LATIN1'), 'hex') FROM "é";
\c regress_latin9
CREATE EXTENSION automation_engine;
\c regress_win1252
CREATE EXTENSION automation_engine;
\c regress_euc_jp
CREATE EXTENSION automation_engine;
\c regress_sql_ascii
CREATE EXTENSION automation_engine;
\c regress_mule
CREATE EXTENSION automation_engine;
\c regress_utf8
CREATE EXTENSION automation_engine;
SELECT count(*) FROM pg_extension WHERE extname = 'automation_engine';
\c :home
DROP DATABASE regress_latin1;
DROP DATABASE regress_latin9;
DROP DATABASE regress_win1252;
DROP DATABASE regress_euc_jp;
DROP DATABASE regress_sql_ascii;
DROP DATABASE regress_mule;
DROP DATABASE regress_utf8;
