-- Events derived from changes (R000-8, R001-15, R004-2, R004-5): several per kind, in the order of registration, a failing
-- one is skipped; they start runs and end waits; nothing is written for them.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv srcdir PG_ABS_SRCDIR
\set show :srcdir '/check/show.sql'
CREATE SCHEMA dev;
SET search_path = dev, public;
\i :show
CREATE TABLE battle (id int PRIMARY KEY, status text, score int, parts int, doc jsonb, secret text);
CREATE TABLE effect (seq serial, what text);
SELECT automation.watch_table('battle', kind => 'd_battle', ignore => '{secret}');

-- defined, listed; again is no change, another condition keeps the place
SELECT automation.derive_event('d_battle', 'd.finalized', $$ new.status becomes 'closed' $$);
SELECT automation.derive_event('d_battle', 'd.high', $$ new.score > 100 $$, name => 'high score');
SELECT automation.derive_event('d_battle', 'd.share', $$ new.score / new.parts > 10 $$);
SELECT automation.derive_event('d_battle', 'd.finalized', $$ new.status becomes 'closed' $$);
SELECT automation.derive_event('d_battle', 'd.finalized', $$ new.status becomes 'done' $$);
SELECT automation.derive_event('d_battle', 'd.finalized', $$ new.status becomes 'closed' $$);
-- the same topic by another rule is one event
SELECT automation.derive_event('d_battle', 'd.high', $$ new.score > 50 $$, name => 'quite high');
SELECT kind, name, topic, condition FROM automation.derived_events WHERE kind LIKE 'd\_%';
SELECT action, details ->> 'name', details ->> 'condition' FROM automation.audit_log WHERE details ->> 'kind' = 'd_battle' ORDER BY at;

CREATE FUNCTION says() RETURNS automation.step LANGUAGE sql AS
$$ SELECT automation.sql('INSERT INTO dev.effect (what) VALUES ({{ run.automation + '': '' + event.topic + '' '' + event.op + '' '' + event.id }})') $$;
CREATE FUNCTION happened() RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM automation.drain();
    RETURN QUERY SELECT what FROM dev.effect ORDER BY seq;
    DELETE FROM dev.effect;
END $$;
SELECT name FROM automation.define('d-exact', trigger => automation.on_event('d.finalized'), steps => ARRAY[says()]);
SELECT name FROM automation.define('d-glob', trigger => automation.on_event('d.*'), steps => ARRAY[says()]);
SELECT name FROM automation.define('d-own', trigger => automation.on_updated('d_battle'), steps => ARRAY[says()]);
SELECT name FROM automation.define('d-filter', trigger => automation.on_event('d.high', filter => 'new.score < 200 and event.topic = ''d.high'''), steps => ARRAY[says()]);
-- own topic and derived ones under one pattern: once, and the topic that the filter wants
SELECT name FROM automation.define('d-all', trigger => automation.on_event('#', filter => 'event.kind = ''d_battle'' and event.topic like ''d.%'''), steps => ARRAY[says()]);

INSERT INTO battle VALUES (1, 'open', 1, 1);
SELECT happened();
-- on the transition (R004-5), not on every update
UPDATE battle SET status = 'closed' WHERE id = 1;
SELECT happened();
UPDATE battle SET score = 2 WHERE id = 1;
SELECT happened();
-- several at once: a trigger fires once, for the first in the order of registration
UPDATE battle SET status = 'open' WHERE id = 1;
SELECT happened();
UPDATE battle SET status = 'closed', score = 150 WHERE id = 1;
SELECT happened();
UPDATE battle SET score = 300 WHERE id = 1;
SELECT happened();
-- one rule fails: the others do not, and it is told of once
UPDATE battle SET parts = 0 WHERE id = 1;
UPDATE battle SET parts = 0, score = 160 WHERE id = 1;
SELECT happened();
SELECT code, regexp_replace(message, '\d+', 'N'), detail FROM automation.log WHERE code = 'derived_event_error';
-- nothing but the change is in the log, each once
SELECT topic, count(*) FROM automation.events WHERE kind = 'd_battle' GROUP BY topic ORDER BY topic;
SELECT count(*) FROM automation.events WHERE topic LIKE 'd.%';
-- in one transaction, not committed
BEGIN;
UPDATE battle SET status = 'open', parts = 1, score = 0 WHERE id = 1;
UPDATE battle SET status = 'closed' WHERE id = 1;
SELECT happened();
ROLLBACK;
-- TRUNCATE is the change of no entity
SELECT automation.derive_event('d_battle', 'd.gone', 'new is null');
DELETE FROM battle WHERE id = 1;
SELECT happened();
TRUNCATE battle;
SELECT happened();
SELECT automation.drop_derived_event('d_battle', 'd.gone'), automation.drop_derived_event('d_battle', 'd.gone');

-- waits (R000-8): for a topic, for a pattern, with a filter; what came while the wait was being armed; looking back
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'd-%';
SELECT name FROM automation.define('d-wait', trigger => automation.on_call(), steps => ARRAY[
    automation.wait_for_event('d.finalized', filter => 'new.id > 1', id => 'w')]);
SELECT name FROM automation.define('d-wait-glob', trigger => automation.on_call(), steps => ARRAY[
    automation.wait_for_event('#', filter => 'event.topic = ''d.finalized''', id => 'w')]);
SELECT automation.start_run('d-wait') AS run \gset
SELECT automation.start_run('d-wait-glob') AS glob \gset
SELECT automation.drain() > 0;
INSERT INTO battle VALUES (1, 'open', 1, 1), (2, 'open', 1, 1);
UPDATE battle SET status = 'closed' WHERE id = 1;
SELECT automation.drain() > 0;
SELECT status, waiting_for FROM automation.runs WHERE id = :run;
SELECT told(:glob);
UPDATE battle SET status = 'closed' WHERE id = 2;
SELECT automation.drain() > 0;
SELECT told(:run);
SELECT result -> 'event' ->> 'topic', result -> 'event' ->> 'id' FROM automation.run_steps WHERE run_id = :run;
SELECT name FROM automation.define('d-look', trigger => automation.on_call(), steps => ARRAY[
    automation.wait_for_event('d.finalized', lookback => '1 hour', id => 'w')]);
SELECT automation.start_run('d-look') AS run \gset
SELECT automation.drain() > 0;
SELECT told(:run);

-- a run that is tried again hears the event on the same topic
CREATE TABLE allowed (id int);
SELECT name FROM automation.define('d-again', trigger => automation.on_event('d.high'), steps => ARRAY[
    automation.sql('INSERT INTO dev.effect (what) SELECT {{ event.topic }} FROM dev.allowed'),
    automation.sql('SELECT 1 / count(*) FROM dev.allowed')]);
UPDATE battle SET score = 70 WHERE id = 1;
SELECT automation.drain() > 0;
SELECT status, error FROM automation.runs WHERE automation = 'd-again';
INSERT INTO allowed VALUES (1);
SELECT automation.retry_run((SELECT id FROM automation.runs WHERE automation = 'd-again'), from_step => 'sql_1') > 0 AS retried;
SELECT happened();

-- refused, each with what to do
SELECT tried($$ SELECT automation.derive_event('d_batle', 'd.x', 'true') $$);
SELECT tried($$ SELECT automation.derive_event('nothing', 'd.x', 'true') $$);
CREATE TABLE brief (id int PRIMARY KEY);
SELECT automation.watch_table('brief', kind => 'd_brief');
DROP TABLE brief;
SELECT tried($$ SELECT automation.derive_event('d_brief', 'd.x', 'true') $$);
SELECT tried($$ SELECT automation.drop_derived_event('d_brief', 'd.x') $$);
SELECT tried($$ SELECT automation.derive_event('d_battle', 'd.*', 'true') $$);
SELECT tried($$ SELECT automation.derive_event('d_battle', '', 'true') $$);
SELECT tried($$ SELECT automation.derive_event('d_battle', 'a b', 'true') $$);
SELECT tried($$ SELECT automation.derive_event('d_battle', 'automation.failed', 'true') $$);
SELECT tried($$ SELECT automation.derive_event('d_battle', '_x.y', 'true') $$);
SELECT tried($$ SELECT automation.derive_event('d_battle', 'd_battle.updated', 'true') $$);
SELECT tried($$ SELECT automation.derive_event('d_battle', 'd.x', 'new.statsu becomes ''x''') $$);
SELECT tried($$ SELECT automation.derive_event('d_battle', 'd.x', 'new.secret = ''x''') $$);
SELECT tried($$ SELECT automation.derive_event('d_battle', 'd.x', 'state.d_battle.1.score > 1') $$);
SELECT tried($$ SELECT automation.derive_event('d_battle', 'd.x', 'now() > event.occurred_at') $$);
SELECT tried($$ SELECT automation.derive_event('d_battle', 'd.x', 'new.score') $$);
SELECT tried($$ SELECT automation.derive_event('d_battle', 'd.x', '{"trigger": "t"}') $$);
SELECT tried($$ SELECT automation.derive_event('d_battle', 'd.x', 'trigger.id = ''t''') $$);
SELECT tried($$ SELECT automation.derive_event('d_battle', 'd.x', 'true', name => ' ') $$);
SELECT automation.derive_event('d_battle', 'd.x', $$ new.status becoms 'x' $$);
\echo :LAST_ERROR_SQLSTATE

-- who may: as with watch_table(); of a kind without a table, whoever made it
CREATE ROLE regress_d_one;
CREATE ROLE regress_d_two;
SELECT automation.grant_usage('regress_d_one', 'author'), automation.grant_usage('regress_d_two', 'author');
GRANT USAGE ON SCHEMA dev TO regress_d_one, regress_d_two;
SET ROLE regress_d_one;
SELECT tried($$ SELECT automation.derive_event('d_battle', 'd.x', 'true') $$);
SELECT tried($$ SELECT automation.drop_derived_event('d_battle', 'd.high') $$);
SELECT count(*) FROM automation.derived_events WHERE kind = 'd_battle';
SELECT automation.set_state('d_sensor', 'one', '{"on": false}') > 0 AS set;
SELECT automation.derive_event('d_sensor', 'd.switched_on', 'new.on becomes true');
RESET ROLE;
GRANT SELECT, TRIGGER ON battle TO regress_d_two;
SET ROLE regress_d_two;
SELECT automation.derive_event('d_battle', 'd.x', 'new.score = 7');
SELECT count(*) FROM automation.derived_events WHERE kind = 'd_battle';
SELECT tried($$ SELECT automation.derive_event('d_sensor', 'd.switched_on', 'true') $$);
SELECT tried($$ SELECT automation.drop_derived_event('d_sensor', 'd.switched_on') $$);
SELECT count(*) FROM automation.derived_events WHERE kind = 'd_sensor';
RESET ROLE;
-- whose rule it is decides whom it starts
SELECT automation.grant_topic('regress_d_one', 'd.switched_on', 'emit', of => current_user::text);
SELECT name FROM automation.define('d-sensor', trigger => automation.on_event('d.switched_on'), steps => ARRAY[says()]);
SELECT automation.set_state('d_sensor', 'one', '{"on": true}') > 0 AS set;
SELECT happened();

-- a name that is nearly right
SELECT notices FROM automation.define('d-near', trigger => automation.on_event('d.finalised'), steps => ARRAY[says()]);
SELECT notices FROM automation.define('d-near', trigger => automation.on_event('something.else'), steps => ARRAY[says()]);

-- a table that is not watched any more has no events, and its rules are gone
SELECT automation.unwatch_table('battle');
SELECT count(*) FROM automation.derived_events WHERE kind = 'd_battle';
SELECT automation.watch_table('battle', kind => 'd_battle');
UPDATE battle SET status = 'open';
UPDATE battle SET status = 'closed';
SELECT happened();
SELECT automation.unwatch_table('battle');
SELECT automation.drop_derived_event('d_sensor', 'd.switched_on');
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'd-%';
SET client_min_messages = warning;
DROP SCHEMA dev CASCADE;
DROP OWNED BY regress_d_one, regress_d_two;
DROP ROLE regress_d_one, regress_d_two;
