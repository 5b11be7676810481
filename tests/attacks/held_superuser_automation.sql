-- attack: run steps as a superuser with the default settings
-- attacker: a superuser's own definition, and a role that is made superuser after it was accepted
-- must not happen: an automation of a superuser is accepted or runs while allow_superuser_automations is off
\i :attack_lib
SELECT attack.held(current_setting('automation_engine.allow_superuser_automations') = 'off', 'the setting is off by default');
SELECT attack.refused($$ SELECT automation.define('s-1', trigger => automation.on_event('x'), steps => ARRAY[automation.sql('SELECT 1')]) $$, '42501');
SELECT attack.refused($$ SELECT automation.define('s-2', trigger => automation.on_event('x'), run_as => 'postgres', steps => ARRAY[automation.sql('SELECT 1')]) $$, '42501');
SELECT attack.refused($$ SET automation_engine.allow_superuser_automations = on $$, '55P02');
SELECT attack.held(count(*) = 0, 'none was saved') FROM automation.automations;
SELECT name FROM automation.define('s-3', trigger => automation.on_event('x'), run_as => 'alice', steps => ARRAY[automation.sql('SELECT 1')]);
SELECT attack.held(owner = 'alice', 'run_as names a role that may') FROM automation.automations WHERE name = 's-3';
