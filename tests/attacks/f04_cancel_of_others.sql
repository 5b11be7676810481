-- attack: stop a stranger's run, or learn of it
-- attacker: op_b, an operator, and mallory, an author, who are not members of the owner's role
-- must not happen: cancel_run() interrupts the run, waits for it, or shows that it exists; the view shows it
\i :attack_lib
SET SESSION AUTHORIZATION owner_a;
CREATE TABLE owner_a.effect (id int);
SELECT automation.define('a-sleep', trigger => automation.on_call(), steps => ARRAY[
    automation.sql('INSERT INTO owner_a.effect VALUES (1)'), automation.sql('SELECT pg_sleep(3600)', id => 'sleep')]);
SELECT automation.start_run('a-sleep') AS run \gset
SELECT attack.wait_for('SELECT EXISTS (SELECT FROM automation.runs WHERE status = ''running'' AND step = ''sleep'')');
SELECT pid, since FROM automation.runs WHERE id = :run \gset
SET SESSION AUTHORIZATION op_b;
SET lock_timeout = '2s';
SELECT attack.refused('SELECT automation.cancel_run(' || :run || ')', '42704');
SELECT attack.held(automation.cancel_run('run.status = ''running''') = 0, 'the form with a filter finds no run of others');
SELECT attack.held(count(*) = 0, 'the view shows no run of others') FROM automation.runs;
SELECT attack.held(query !~ 'a-sleep', 'the activity of the executor is not told') FROM pg_stat_activity WHERE pid = :pid;
SET SESSION AUTHORIZATION mallory;
SELECT attack.refused('SELECT automation.cancel_run(' || :run || ')', '42704');
RESET SESSION AUTHORIZATION;
SELECT attack.held(status = 'running' AND pid = :pid AND since = :'since', 'the run goes on where it was') FROM automation.runs WHERE id = :run;
SELECT attack.held(query = format('automation "a-sleep" run %s step "sleep"', :run), 'the activity names automation, run and step')
  FROM pg_stat_activity WHERE pid = :pid;
SET SESSION AUTHORIZATION owner_a;
SELECT attack.held(automation.cancel_run(:run), 'its owner cancels it');
