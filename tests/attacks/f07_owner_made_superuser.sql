-- attack: wait with a live executor until the owner is made superuser, then read a server file
-- attacker: mallory, who is made superuser for a moment by an administrator
-- must not happen: a step of hers runs as a superuser while allow_superuser_automations is off
\i :attack_lib
\c attack mallory
CREATE TABLE mallory.got (text text);
SELECT automation.define('m-peek', trigger => automation.on_event('m.peek'), breaker => 0, steps => ARRAY[
    automation.sql($$ DO $do$ BEGIN
        INSERT INTO mallory.got SELECT pg_read_file('PG_VERSION');
    EXCEPTION WHEN insufficient_privilege THEN
        INSERT INTO mallory.got VALUES ('refused');
    END $do$ $$)]);
SELECT automation.emit('m.peek');
SELECT attack.wait_for('SELECT count(*) = 1 FROM mallory.got');
SELECT attack.held((SELECT count(*) FROM automation.stat_workers WHERE owner = 'mallory') = 1, 'her executor is alive');
\c attack postgres
ALTER ROLE mallory SUPERUSER;
SELECT automation.emit('m.peek') FROM generate_series(1, 20);
SELECT attack.wait_for($$ SELECT EXISTS (SELECT FROM automation.log WHERE code = 'owner_refused')
                              OR (SELECT count(*) FROM mallory.got) > 1 $$);
SELECT attack.held((SELECT array_agg(text) FROM mallory.got) = '{refused}', 'no step ran as a superuser');
SELECT attack.held(status = 'refused' AND detail LIKE '%is a superuser%20 queued', 'status() says why: ' || detail)
  FROM automation.status() WHERE item = 'owner mallory';
-- by hand neither
SELECT automation.drain();
SELECT attack.held((SELECT array_agg(text) FROM mallory.got) = '{refused}', 'drain() runs none of it');
ALTER ROLE mallory NOSUPERUSER;
SELECT attack.wait_for('SELECT count(*) = 21 FROM mallory.got');
SELECT attack.held(bool_and(text = 'refused'), 'the work goes on without the right') FROM mallory.got;
