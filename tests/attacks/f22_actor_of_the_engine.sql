-- attack: write events that seem to come from the engine
-- attacker: app, who writes a watched table, and mallory, an author
-- must not happen: an event of theirs has an actor that begins with system:
\i :attack_lib
CREATE TABLE public.account (id int PRIMARY KEY, amount int);
GRANT SELECT, INSERT, UPDATE ON public.account TO app;
SELECT automation.watch_table('public.account');
\c attack app
SELECT attack.refused('SET automation_engine.actor = ''system:automation:alice-v''', '42501');
SELECT attack.refused('SET LOCAL automation_engine.actor = ''SYSTEM:schedule''', '42501');
SELECT attack.refused(format('SELECT set_config(''automation_engine.actor'', %L, false)', E'\t system:x'), '42501');
SELECT attack.refused('ALTER ROLE app SET automation_engine.actor = ''system:x''', '42501');
INSERT INTO account VALUES (1, 1);
SET automation_engine.actor = 'user:7';
INSERT INTO account VALUES (2, 1);
\c attack mallory
SELECT attack.refused('SET automation_engine.actor = ''system:automation:x''', '42501');
SELECT automation.emit('m.event');
\c attack postgres
SELECT attack.held(count(*) = 3 AND count(actor) FILTER (WHERE actor LIKE 'system:%') = 0, 'no event of theirs is the engine''s')
  FROM automation.events WHERE cause_run IS NULL;
-- the engine itself still has it
GRANT SELECT, UPDATE ON account TO alice;
\c attack alice
SELECT automation.define('a-note', trigger => automation.on_event('a.go'), steps => ARRAY[automation.publish('a.gone', '{}')]);
SELECT automation.emit('a.go');
\c attack postgres
SELECT attack.wait_for($$ SELECT EXISTS (SELECT FROM automation.events WHERE topic = 'a.gone' AND actor = 'system:automation:a-note') $$);
