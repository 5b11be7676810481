-- attack: wake or bury the waiting run of another owner under signals
-- attacker: mallory, an author, who knows the name of the signal
-- must not happen: the run takes a signal of hers, or does not get its own
\i :attack_lib
\c attack alice
CREATE TABLE alice.effect (who text);
SELECT automation.define('alices', trigger => automation.on_event('alice.starts'), steps => ARRAY[
    automation.wait_signal('go'), automation.sql($$ INSERT INTO alice.effect VALUES ('done') $$)]) IS NOT NULL AS defined;
SELECT automation.emit('alice.starts') IS NOT NULL AS emitted;
SELECT attack.wait_for($$SELECT EXISTS (SELECT FROM automation.waiting WHERE automation = 'alices')$$);
\c attack mallory
SELECT count(automation.signal('go')) FROM generate_series(1, 20000);
\c attack alice
SELECT automation.emit('alice.starts') IS NOT NULL AS emitted;
SELECT attack.wait_for($$SELECT count(*) = 2 FROM automation.waiting WHERE automation = 'alices'$$);
SELECT attack.held(count(*) = 0, 'no signal of mallory''s was taken') FROM alice.effect;
SELECT automation.signal('go') IS NOT NULL AS signalled;
SELECT attack.wait_for('SELECT EXISTS (SELECT FROM alice.effect)');
SELECT attack.held(true, 'alice''s own signal is taken');
