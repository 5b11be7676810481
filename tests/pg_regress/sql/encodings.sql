-- The engine converts texts where the server can, is refused where it cannot, and leaves errors of other code alone.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\set home :DBNAME
CREATE DATABASE regress_latin1 TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C';
CREATE DATABASE regress_latin2 TEMPLATE template0 ENCODING 'LATIN2' LOCALE 'C';
CREATE DATABASE regress_euc_kr TEMPLATE template0 ENCODING 'EUC_KR' LOCALE 'C';
CREATE DATABASE regress_sql_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C';
CREATE DATABASE regress_mule TEMPLATE template0 ENCODING 'MULE_INTERNAL' LOCALE 'C';
\c regress_latin1
\encoding UTF8
CREATE EXTENSION automation_engine;
-- errors of other code keep their letters, the library being loaded
DO $$ BEGIN RAISE EXCEPTION 'café' USING DETAIL = 'crème', HINT = 'brûlée'; END $$;
CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN RAISE EXCEPTION 'déjà vu'; END $$;
CALL p();
CREATE TABLE "é" (x text);
INSERT INTO "é" VALUES ('é');
DROP TABLE "ü";
SELECT encode(convert_to(x, 'LATIN1'), 'hex') FROM "é";
-- ours too; the caret stands below the right letter
SELECT automation.document('größe');
SELECT automation.evaluate('"größe" + größe("é")');
SELECT count(*) FROM automation.extract_refs('state[payload."größe"].x == 1');
DO $$ BEGIN PERFORM automation.document('größe'); EXCEPTION WHEN others THEN RAISE NOTICE 'caught: %', SQLERRM; END $$;
-- an error that was caught leaves later messages alone
DO $$ BEGIN BEGIN PERFORM automation.evaluate('é(1)'); EXCEPTION WHEN others THEN RAISE NOTICE '%', SQLERRM; END; RAISE NOTICE 'another é'; END $$;
DO $$ BEGIN BEGIN PERFORM automation.evaluate('é(1)'); EXCEPTION WHEN others THEN NULL; END; RAISE NOTICE 'function "é" does not exist' USING HINT = 'ü'; END $$;
-- a text that is as long as several pieces of a conversion, with letters at its borders
SELECT automation.evaluate('length(x)', jsonb_build_object('x', repeat('é', 200000))), length(automation.evaluate('x + x', jsonb_build_object('x', repeat('aé', 100000)))::text);
SELECT automation.evaluate('upper("größe") + x', '{"x": "é"}');
SELECT encode(convert_to(automation.evaluate('"é"')::text, 'LATIN1'), 'hex');
SELECT automation.evaluate('upper("ÿ")');
\echo :LAST_ERROR_SQLSTATE
\c regress_latin2
\encoding UTF8
CREATE EXTENSION automation_engine;
SELECT automation.evaluate('upper("žluť")');
\c regress_euc_kr
\encoding UTF8
CREATE EXTENSION automation_engine;
SELECT automation.evaluate('"한글" + length("한글")');
\c regress_sql_ascii
CREATE EXTENSION automation_engine;
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'automation%';
\c regress_mule
CREATE EXTENSION automation_engine;
\c :home
DROP DATABASE regress_latin1 WITH (FORCE);
DROP DATABASE regress_latin2 WITH (FORCE);
DROP DATABASE regress_euc_kr WITH (FORCE);
DROP DATABASE regress_sql_ascii;
DROP DATABASE regress_mule;
