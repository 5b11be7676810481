-- attack: end the executor's process from a step, again and again
-- attacker: mallory, author of the step
-- must not happen: the runs of alice are lost, or the run that kills is tried for ever
\i :attack_lib
\c attack mallory
SELECT automation.define('m-kill', trigger => automation.on_event('m.kill'), steps => ARRAY[
    automation.sql('SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(5)')]);
SELECT automation.emit('m.kill') FROM generate_series(1, 3);
\c attack alice
CREATE TABLE alice.got (n int);
SELECT automation.define('a-work', trigger => automation.on_event('a.work'), steps => ARRAY[
    automation.sql($$ INSERT INTO alice.got VALUES (({{ payload.n }})::int) $$)]);
SELECT automation.emit('a.work', jsonb_build_object('n', n)) FROM generate_series(1, 20) AS n;
SELECT attack.wait_for('SELECT count(*) = 20 FROM alice.got');
SELECT attack.held(count(*) = 20 AND count(DISTINCT n) = 20, 'each run of alice was executed once') FROM alice.got;
\c attack mallory
SELECT attack.wait_for($$ SELECT count(*) = 3 FROM automation.runs WHERE status = 'failed' $$, 60);
SELECT attack.held(bool_and(ended_reason = 'crashed_server'), 'the runs that kill are set aside') FROM automation.runs;
