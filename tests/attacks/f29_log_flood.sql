-- attack: fill the disk with the log of the engine
-- attacker: mallory, an author, with a filter that fails for each event
-- must not happen: the log grows with the events; old entries are kept for ever
\i :attack_lib
\c attack mallory
SELECT automation.define('m-fails', trigger => automation.on_event('m.fail', filter => '1 / payload.n > 0'),
    steps => ARRAY[automation.sql('SELECT 1')]) IS NOT NULL AS defined;
SELECT count(automation.emit('m.fail', '{"n": 0}')) FROM generate_series(1, 2000);
SELECT attack.wait_for($$SELECT filter_errors = 2000 FROM automation.stat_automations WHERE automation = 'm-fails'$$);
SELECT attack.held(count(*) < 20, format('2000 failures are %s entries of the log', count(*))) FROM automation.log WHERE automation = 'm-fails';
SELECT attack.held(sum(times) = 2000, 'each failure is counted') FROM automation.log WHERE automation = 'm-fails';
SELECT attack.refused('DELETE FROM automation_internal.log', '42501');
\c attack postgres
UPDATE automation_internal.log SET at = at - interval '31 days';
SELECT automation.sweep() >= 0 AS swept;
SELECT attack.held(count(*) = 0, 'old entries are forgotten') FROM automation_internal.log WHERE code = 'filter_error';
