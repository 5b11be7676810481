-- attack: have the conductor build a million notifications
-- attacker: mallory, an author, with as many subscriptions as she gets
-- must not happen: she gets thousands of them; alice's automation waits
\i :attack_lib
\c attack mallory
DO $$ BEGIN
    FOR n IN 1 .. 100 LOOP PERFORM automation.subscribe('#', 'feed' || n); END LOOP;
END $$;
SELECT attack.refused($$SELECT automation.subscribe('#', 'one_too_many')$$, '53400');
SELECT attack.refused('SET automation_engine.max_subscriptions_per_role = 1000000', '42501');
-- sessions that subscribe at the same time do not get more together
\! for i in 1 2 3 4; do psql -X -q -d "host=$PGHOST port=$PGPORT dbname=attack user=mallory" -c "SELECT automation.unsubscribe('#', 'feed1'); SELECT automation.subscribe('#', 'again$i')" >/dev/null 2>&1 & done; wait
SELECT attack.held(count(*) <= 100, 'mallory has no more than 100 subscriptions') FROM automation.subscriptions;
\c attack alice
CREATE TABLE alice.effect (n int);
SELECT automation.define('alices', trigger => automation.on_event('alice.calls'),
    steps => ARRAY[automation.sql($$ INSERT INTO alice.effect VALUES ({{ payload.n }}) $$)]) IS NOT NULL AS defined;
\c attack mallory
SELECT count(automation.emit('m.flood')) FROM generate_series(1, 3000);
\c attack alice
SELECT automation.emit('alice.calls', '{"n": 1}') IS NOT NULL AS emitted;
SELECT attack.wait_for('SELECT EXISTS (SELECT FROM alice.effect WHERE n = 1)');
SELECT attack.held(true, 'alice''s run is done');
\c attack mallory
SELECT attack.wait_for($$SELECT EXISTS (SELECT FROM automation.log WHERE code = 'notifications_left_out')$$);
SELECT attack.held(sum(times) > 0, 'what was left out is counted') FROM automation.log WHERE code = 'notifications_left_out';
