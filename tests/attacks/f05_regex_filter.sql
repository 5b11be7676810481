-- attack: stop the conductor with a regular expression
-- attacker: mallory, an author, with one filter and some events of a megabyte
-- must not happen: alice's automation waits, or the conductor does not obey pg_terminate_backend
\i :attack_lib
\c attack alice
CREATE TABLE alice.effect (n int);
SELECT automation.define('alices', trigger => automation.on_event('alice.calls'),
    steps => ARRAY[automation.sql($$ INSERT INTO alice.effect VALUES ({{ payload.n }}) $$)]) IS NOT NULL AS defined;
\c attack mallory
SELECT automation.define('m-regex', steps => ARRAY[automation.sql('SELECT 1')], trigger => automation.on_event('m.text',
    filter => (SELECT string_agg($$matches(payload.t, '(?:[ab]{0,500}a[ab]{500})[^a-b]')$$, ' or ') FROM generate_series(1, 20)))) IS NOT NULL AS defined;
SELECT count(automation.emit('m.text', jsonb_build_object('t', repeat('ab', 500000)))) FROM generate_series(1, 20);
\c attack alice
SELECT automation.emit('alice.calls', '{"n": 1}') IS NOT NULL AS emitted;
SELECT attack.wait_for('SELECT EXISTS (SELECT FROM alice.effect WHERE n = 1)', 20);
SELECT attack.held(true, 'alice''s run is done while mallory''s filter is asked');
\c attack mallory
SELECT attack.wait_for($$SELECT status = 'paused' AND disable_details ->> 'reason' = 'filter_too_slow' FROM automation.automations WHERE name = 'm-regex'$$);
SELECT attack.held(true, 'the automation with the dear filter is paused');
-- again, and the conductor is told to end in the midst of it
SELECT automation.resume('m-regex') IS NOT NULL AS resumed;
\c attack postgres
SELECT pid AS conductor FROM pg_stat_activity WHERE backend_type = 'automation_engine conductor' AND datname = 'attack' \gset
\c attack mallory
SELECT count(automation.emit('m.text', jsonb_build_object('t', repeat('ab', 500000)))) FROM generate_series(1, 20);
\c attack postgres
SELECT pg_terminate_backend(:conductor) AS told;
SELECT attack.wait_for(format('SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)', :conductor), 20);
SELECT attack.held(true, 'the conductor obeys');
