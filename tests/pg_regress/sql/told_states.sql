-- What is refused says why: a retry of a run that has not ended, a step to skip where none failed, an event in a read-only
-- transaction; and status() names a column that a watched table has lost.
\set VERBOSITY default
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
CREATE SCHEMA told;
SET search_path = told, public;
\getenv dir PG_ABS_SRCDIR
\set show :dir '/check/show.sql'
\i :show
CREATE TABLE effect (what text);
SELECT name FROM automation.define('t-waits', trigger => automation.on_call(), steps => ARRAY[
    automation.sql($$ INSERT INTO told.effect VALUES ('first') $$, id => 'first'), automation.wait_signal('t-go', id => 'wait'),
    automation.sql($$ INSERT INTO told.effect VALUES ('last') $$, id => 'last')]);
-- retry_run() of a run that is queued, and of one that waits
SELECT automation.start_run('t-waits') AS a \gset
SELECT automation.route() > 0;
SELECT tried(format('SELECT automation.retry_run(%s)', :a));
SELECT tried(format('SELECT automation.skip_step(%s)', :a));
SELECT automation.drain();
SELECT tried(format('SELECT automation.retry_run(%s)', :a));
-- for a role without rights on it, it does not exist
CREATE ROLE regress_t_other;
SELECT automation.grant_usage('regress_t_other', 'operator');
GRANT USAGE ON SCHEMA told TO regress_t_other;
SET ROLE regress_t_other;
SELECT tried(format('SELECT automation.retry_run(%s)', :a));
RESET ROLE;
-- skip_step() of a run that was cancelled while it waited: no step of it failed, and none is skipped
SELECT automation.cancel_run(:a);
SELECT tried(format('SELECT automation.skip_step(%s)', :a));
SELECT tried(format('SELECT automation.skip_step(%s, %L)', :a, 'wait'));
SELECT automation.retry_run(:a) > 0, automation.drain();
SELECT * FROM effect;
-- a read-only transaction takes no event
BEGIN READ ONLY;
SELECT automation.emit('told.nothing');
ROLLBACK;
BEGIN READ ONLY;
SELECT automation.start_run('t-waits');
ROLLBACK;
SELECT count(*) FROM automation.events WHERE topic = 'told.nothing';
SELECT automation.emit('told.something') > 0;
-- columns that a watched table has lost
CREATE TABLE item (id int PRIMARY KEY, account text, secret text, plain text, other text);
SELECT automation.watch_table('item', kind => 't_item', tenant_column => 'account', ignore => '{secret}');
CREATE FUNCTION state_of(kind text) RETURNS text LANGUAGE sql AS
    $$ SELECT status || ': ' || detail FROM automation.status() WHERE item = 'kind ' || kind $$;
SELECT state_of('t_item');
ALTER TABLE item RENAME secret TO hidden;
SELECT state_of('t_item');
ALTER TABLE item RENAME account TO customer;
SELECT state_of('t_item');
ALTER TABLE item RENAME id TO number;
SELECT state_of('t_item');
ALTER TABLE item RENAME number TO id;
ALTER TABLE item RENAME customer TO account;
ALTER TABLE item RENAME hidden TO secret;
SELECT state_of('t_item');
SELECT automation.unwatch_table('item');
SELECT automation.drop_automation('t-waits');
DELETE FROM automation_internal.signal;
SELECT automation.revoke_usage('regress_t_other');
DROP SCHEMA told CASCADE;
DROP ROLE regress_t_other;
