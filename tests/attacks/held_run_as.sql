-- attack: have steps run as a role that the author may not become
-- attacker: mallory, an author who is no member of alice
-- must not happen: an automation that runs as alice or as a superuser is accepted, or stays hers after she lost the membership
\i :attack_lib
\c attack mallory
SELECT attack.refused($$ SELECT automation.define('m-as', trigger => automation.on_event('x'), run_as => 'alice', steps => ARRAY[automation.sql('SELECT 1')]) $$, '42501');
SELECT attack.refused($$ SELECT automation.define('m-as', trigger => automation.on_event('x'), run_as => 'postgres', steps => ARRAY[automation.sql('SELECT 1')]) $$, '42501');
SELECT attack.refused($$ SELECT automation.define('{"name": "m-as", "run_as": "postgres", "triggers": [{"on": "event", "topic": "x"}], "steps": [{"sql": "SELECT 1"}]}') $$, '42501');
SELECT attack.refused($$ SELECT automation.define('{"name": "m-as", "run_as": "alice", "triggers": [{"on": "event", "topic": "x"}], "steps": [{"sql": "SELECT 1"}]}'::jsonb) $$, '42501');
SELECT attack.held(count(*) = 0, 'none was saved') FROM automation.automations;
\c attack postgres
GRANT alice TO mallory;
\c attack mallory
SELECT automation.define('m-as', trigger => automation.on_event('m.as'), run_as => 'alice', steps => ARRAY[
    automation.sql('SELECT 1')]);
\c attack postgres
REVOKE alice FROM mallory;
\c attack mallory
SELECT attack.held(count(*) = 0, 'after REVOKE she does not see it') FROM automation.automations;
SELECT attack.held(NOT ok AND reason = 'automation_not_found', 'she cannot pause it') FROM automation.pause('m-as');
SELECT attack.refused($$ SELECT automation.start_run('m-as') $$, '42704');
SELECT attack.refused($$ SELECT automation.define('m-as', trigger => automation.on_event('x'), steps => ARRAY[automation.sql('SELECT 2')]) $$, '42710');
\c attack alice
SELECT attack.held(owner = 'alice', 'it is alice''s') FROM automation.automations WHERE name = 'm-as';
