-- attack: an endless step that cannot be stopped
-- attacker: mallory, an author; her step also catches the interruption
-- must not happen: cancel_run() waits for the step's end, or the run ends otherwise than cancelled
\i :attack_lib
SET SESSION AUTHORIZATION mallory;
CREATE TABLE mallory.effect (run bigint);
SELECT automation.define('endless', trigger => automation.on_call(), steps => ARRAY[
    automation.sql('INSERT INTO mallory.effect VALUES ({{ run.id }})'),
    automation.sql('SELECT pg_sleep(3600)', id => 'sleep', retry => automation.retry())],
    on_failure => ARRAY[automation.sql('INSERT INTO mallory.effect VALUES (0)')]);
SELECT automation.define('stubborn', trigger => automation.on_call(), steps => ARRAY[automation.sql($sql$
    DO $do$ BEGIN LOOP BEGIN PERFORM pg_sleep(3600); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $do$
    $sql$, id => 'sleep')]);
SELECT automation.start_run('endless') AS endless \gset
SELECT automation.start_run('stubborn') AS stubborn \gset
SELECT attack.wait_for('SELECT count(*) = 2 FROM automation.runs WHERE status = ''running'' AND step = ''sleep''');
SELECT attack.held(automation.cancel_run(:endless), 'the endless run is cancelled');
SELECT attack.held(automation.cancel_run(:stubborn), 'and so is the one that catches the interruption');
SELECT attack.held(array_agg(DISTINCT status) = '{cancelled}', 'both ended as cancelled') FROM automation.runs;
SELECT attack.held(count(*) = 0, 'what they did is rolled back, and on_failure is not run') FROM mallory.effect;
