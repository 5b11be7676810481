-- attack: learn the primary keys of a table whose schema and rows are closed to the attacker
-- attacker: owner_b, an author without USAGE on the schema and without SELECT on the table
-- must not happen: a key of the table stands in a view that the attacker may read
\i :attack_lib
\c attack owner_a
CREATE TABLE owner_a.people (email text PRIMARY KEY, name text);
SELECT automation.watch_table('owner_a.people');
SELECT automation.derive_event('people', 'people.hired', $$ new.name <> '' $$);
SELECT automation.define('a-people', trigger => automation.on_changed('people'), steps => ARRAY[automation.sql('SELECT 1')]);

\c attack owner_b
-- named: refused when it is defined, by whatever trigger names the kind
SELECT attack.refused($$ SELECT automation.define('b-1', trigger => automation.on_changed('people'), steps => ARRAY[automation.sql('SELECT 1')], breaker => 0) $$, '42501');
SELECT attack.refused($$ SELECT automation.define('b-2', trigger => automation.on_state('people', 'name', hold_for => '1 second'), steps => ARRAY[automation.sql('SELECT 1')]) $$, '42501');
SELECT attack.refused($$ SELECT automation.define('b-3', trigger => automation.on_created('people', window_count => 1, window_within => '1 hour'), steps => ARRAY[automation.sql('SELECT 1')], status => 'draft') $$, '42501');
SELECT attack.held(count(*) = 1, 'validate() says so too') FROM automation.validate('{"name": "b-v", "trigger": {"on": "changed", "kind": "people"}, "steps": [{"do": "sql", "sql": "SELECT 1"}]}') WHERE sqlstate = '42501' AND hint LIKE 'GRANT USAGE ON SCHEMA owner_a TO owner_b; GRANT SELECT ON owner_a.people TO owner_b;';
-- by pattern, by derived topic, by waiting: accepted, and told nothing
SELECT automation.define('b-all', trigger => automation.on_event('#'), steps => ARRAY[automation.sql('SELECT 1')], breaker => 0);
SELECT automation.define('b-hired', trigger => automation.on_event('people.hired'), steps => ARRAY[automation.sql('SELECT 1')], breaker => 0);
SELECT automation.define('b-topic', trigger => automation.on_event('people.created', hold_for => '1 second'), steps => ARRAY[automation.sql('SELECT 1')], breaker => 0);
SELECT automation.define('b-wait', trigger => automation.on_call(), steps => ARRAY[automation.wait_for_event('people.*', id => 'w')]);
SELECT automation.start_run('b-wait');
SELECT automation.subscribe('#', 'b_channel');
SELECT attack.wait_for('SELECT count(*) = 1 FROM automation.waiting');

\c attack owner_a
INSERT INTO owner_a.people VALUES ('ceo@example.com', 'A'), ('cfo@example.com', 'B');
UPDATE owner_a.people SET name = 'C';
DELETE FROM owner_a.people;
SELECT attack.wait_for('SELECT count(*) = 6 FROM automation.runs WHERE automation = ''a-people'' AND status = ''completed''');

\c attack owner_b
-- counted with a reason, so that the missing runs are no riddle
SELECT attack.wait_for('SELECT sum(count) >= 8 FROM automation.stat_gates WHERE reason = ''no_rights''');
SELECT attack.held(count(*) = 1, 'and the log names the missing right once') FROM automation.log WHERE automation = 'b-all' AND code = 'no_rights';
SELECT attack.held(count(*) = 1, 'the run still waits') FROM automation.waiting WHERE automation = 'b-wait';
CREATE FUNCTION owner_b.told() RETURNS TABLE (view_name name, said text) LANGUAGE plpgsql AS $$
BEGIN
    FOR view_name IN SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'automation'::regnamespace AND c.relkind = 'v' LOOP
        RETURN QUERY EXECUTE format('SELECT %L::name, v::text FROM automation.%I AS v', view_name, view_name);
    END LOOP;
END $$;
SELECT attack.held(count(*) = 0, 'no key stands in any view') FROM owner_b.told() WHERE said LIKE '%example.com%';
SELECT attack.held(count(*) > 10, 'although the views were read') FROM owner_b.told();
SELECT attack.held(count(*) = 0, 'no run was started by it') FROM automation.runs WHERE automation <> 'b-wait' AND entity LIKE 'people%';
