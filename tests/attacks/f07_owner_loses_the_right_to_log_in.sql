-- attack: go on with a live executor after the right to log in was taken away
-- attacker: mallory, whose account is closed in four ways
-- must not happen: a run of hers is executed while a new log-in of hers would be refused
\i :attack_lib
\c attack mallory
CREATE TABLE mallory.got (n int);
SELECT automation.define('m-go', trigger => automation.on_event('m.go'), breaker => 0, steps => ARRAY[
    automation.sql($$ INSERT INTO mallory.got VALUES (({{ payload.n }})::int) $$)]);
SELECT automation.emit('m.go', '{"n": 0}');
SELECT attack.wait_for('SELECT count(*) = 1 FROM mallory.got');
\c attack postgres
-- the refusal is known when it is logged; until then the run would have been executed
ALTER ROLE mallory NOLOGIN;
SELECT automation.emit('m.go', '{"n": 1}');
SELECT attack.wait_for($$ SELECT EXISTS (SELECT FROM automation.log WHERE message = 'role "mallory" is not permitted to log in') $$);
SELECT attack.held(NOT EXISTS (SELECT FROM mallory.got WHERE n = 1), 'nothing runs after NOLOGIN');
ALTER ROLE mallory LOGIN;
SELECT attack.wait_for('SELECT EXISTS (SELECT FROM mallory.got WHERE n = 1)');

ALTER ROLE mallory VALID UNTIL '2001-01-01';
SELECT automation.emit('m.go', '{"n": 2}');
SELECT attack.wait_for($$ SELECT EXISTS (SELECT FROM automation.log WHERE message = 'role "mallory" has expired') $$);
SELECT attack.held(NOT EXISTS (SELECT FROM mallory.got WHERE n = 2), 'nothing runs after VALID UNTIL');
ALTER ROLE mallory VALID UNTIL 'infinity';
SELECT attack.wait_for('SELECT EXISTS (SELECT FROM mallory.got WHERE n = 2)');

REVOKE CONNECT ON DATABASE attack FROM PUBLIC;
SELECT automation.emit('m.go', '{"n": 3}');
SELECT attack.wait_for($$ SELECT EXISTS (SELECT FROM automation.log WHERE message = 'role "mallory" may not connect to this database') $$);
SELECT attack.held(NOT EXISTS (SELECT FROM mallory.got WHERE n = 3), 'nothing runs without CONNECT');
GRANT CONNECT ON DATABASE attack TO PUBLIC;
SELECT attack.wait_for('SELECT EXISTS (SELECT FROM mallory.got WHERE n = 3)');

ALTER ROLE mallory CONNECTION LIMIT 0;
SELECT automation.emit('m.go', '{"n": 4}');
SELECT attack.wait_for($$ SELECT EXISTS (SELECT FROM automation.log WHERE message = 'role "mallory" has a connection limit of 0') $$);
SELECT attack.held(NOT EXISTS (SELECT FROM mallory.got WHERE n = 4), 'nothing runs with a connection limit of 0');
ALTER ROLE mallory CONNECTION LIMIT -1;
SELECT attack.wait_for('SELECT EXISTS (SELECT FROM mallory.got WHERE n = 4)');
SELECT attack.held(count(*) = 5 AND count(DISTINCT n) = 5, 'each run was executed once') FROM mallory.got;
