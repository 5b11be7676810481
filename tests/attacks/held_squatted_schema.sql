-- attack: own a schema that the extension is to be installed into
-- attacker: mallory, who may create schemas in a database that is to get the extension
-- must not happen: CREATE EXTENSION succeeds with objects that mallory can change, or calls one of them
\i :attack_lib
DROP EXTENSION automation_engine CASCADE;
DROP SCHEMA IF EXISTS automation, automation_internal CASCADE;
GRANT CREATE ON DATABASE attack TO mallory;
\c attack mallory
CREATE TABLE mallory.canary (who name);
GRANT INSERT ON mallory.canary TO PUBLIC;
GRANT USAGE ON SCHEMA mallory TO PUBLIC;
CREATE SCHEMA automation;
GRANT ALL ON SCHEMA automation TO PUBLIC;
CREATE FUNCTION automation.pwn(text, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN INSERT INTO mallory.canary VALUES (current_user); RETURN $1; END $$;
CREATE OPERATOR automation.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = automation.pwn);
\c attack postgres
SELECT attack.refused('CREATE EXTENSION automation_engine', '%');
SELECT attack.held(count(*) = 0, 'nothing of mallory''s ran') FROM mallory.canary;
DROP SCHEMA automation CASCADE;
\c attack mallory
CREATE SCHEMA automation_internal;
CREATE TABLE automation_internal.event (id bigint);
CREATE TABLE automation_internal.router_cursor (singleton boolean);
CREATE FUNCTION automation_internal.capture_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO mallory.canary VALUES (current_user); RETURN NULL; END $$;
\c attack postgres
SELECT attack.refused('CREATE EXTENSION automation_engine', '%');
SELECT attack.held(count(*) = 0, 'no look-alike table was taken over') FROM pg_class WHERE relnamespace = 'automation_internal'::regnamespace AND relname LIKE 'automation%';
SELECT attack.held(count(*) = 0, 'nothing of mallory''s ran') FROM mallory.canary;
DROP SCHEMA automation_internal CASCADE;
CREATE EXTENSION automation_engine;
SELECT attack.held(nspowner = 'postgres'::regrole, format('without the squatter %s belongs to the installer', nspname)) FROM pg_namespace WHERE nspname LIKE 'automation%';
