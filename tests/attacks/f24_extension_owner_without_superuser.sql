-- attack: make the question whether the owner may work fail, so that it is not answered with no
-- attacker: mallory, a superuser, in a database whose extension belongs to a role that lost SUPERUSER
-- must not happen: her automation runs although allow_superuser_automations is off
\i :attack_lib
CREATE ROLE attack_keeper SUPERUSER LOGIN;
CREATE DATABASE attack_kept;
\c attack_kept attack_keeper
CREATE EXTENSION automation_engine;
SELECT automation.grant_usage('mallory', 'author');
\c attack_kept postgres
ALTER ROLE attack_keeper NOSUPERUSER;
\i :attack_lib
CREATE SCHEMA mallory AUTHORIZATION mallory;
\c attack_kept mallory
CREATE TABLE mallory.got (text text);
SELECT automation.define('m-peek', trigger => automation.on_event('m.peek'), steps => ARRAY[
    automation.sql($$ INSERT INTO mallory.got VALUES (current_user) $$)]);
\c attack_kept postgres
ALTER ROLE mallory SUPERUSER;
SELECT automation.emit('m.peek');
SELECT attack.wait_for($$ SELECT EXISTS (SELECT FROM automation.log WHERE code = 'owner_refused')
                              OR EXISTS (SELECT FROM mallory.got) $$);
SELECT attack.held(NOT EXISTS (SELECT FROM mallory.got), 'nothing ran, and the reason was found without reading pg_authid');
SELECT attack.held(message LIKE '%is a superuser%', 'the log says: ' || message) FROM automation.log WHERE code = 'owner_refused';
\c attack postgres
ALTER ROLE mallory NOSUPERUSER;
ALTER ROLE attack_keeper SUPERUSER;
DROP DATABASE attack_kept WITH (FORCE);
DROP ROLE attack_keeper;
