-- attack: have the queued work of a closed account run by a call of drain() or dispatch()
-- attacker: mallory, whose account is closed; a superuser drives the queue
-- must not happen: her steps run although she may not log in
\i :attack_lib
SELECT automation.stop_workers();
SELECT attack.wait_for($$ SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = 'attack' AND backend_type LIKE 'automation_engine%') $$);
\c attack mallory
CREATE TABLE mallory.got (by_role name DEFAULT current_user);
SELECT automation.define('m-go', trigger => automation.on_event('m.go'), steps => ARRAY[
    automation.sql($$ INSERT INTO mallory.got DEFAULT VALUES $$)]);
SELECT automation.emit('m.go');
\c attack postgres
ALTER ROLE mallory NOLOGIN;
SELECT automation.drain();
SELECT automation.dispatch();
SELECT attack.held((SELECT count(*) FROM mallory.got) = 0, 'neither drain() nor dispatch() runs her work');
SELECT attack.held(status = 'pending', 'the run stays queued') FROM automation.runs WHERE automation = 'm-go';
ALTER ROLE mallory LOGIN;
SELECT automation.drain();
SELECT attack.held((SELECT array_agg(by_role) FROM mallory.got) = '{mallory}', 'with the right back it runs, as her');
