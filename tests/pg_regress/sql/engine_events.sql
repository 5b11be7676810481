-- What the engine tells of its own runs and steps (R001-14), and of what becomes of automations (R003-19): only if somebody
-- listens, only to those who may see the automation, and never to whoever caused it (no loop).
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv srcdir PG_ABS_SRCDIR
\set show :srcdir '/check/show.sql'
CREATE SCHEMA eng;
SET search_path = eng, public;
\i :show
CREATE TABLE item (id int PRIMARY KEY, tenant text);
CREATE TABLE effect (seq serial, what text);
SELECT automation.watch_table('item', kind => 'g_item', tenant_column => 'tenant');
CREATE FUNCTION happened() RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM automation.drain();
    RETURN QUERY SELECT what FROM eng.effect ORDER BY seq;
    DELETE FROM eng.effect;
END $$;
CREATE FUNCTION told_of() RETURNS bigint LANGUAGE sql AS
$$ SELECT count(*) FROM automation_internal.event WHERE topic LIKE 'automation.%' AND op = 'e' $$;
CREATE FUNCTION says() RETURNS automation.step LANGUAGE sql AS
$$ SELECT automation.sql('INSERT INTO eng.effect (what) VALUES ({{ run.automation + '' hears '' + event.topic + '' of '' + event.id + '' '' + (payload.step | default('''')) + '' '' + (payload.error.message | default('''')) + '' '' + (payload.chain | json) }})') $$;

SELECT name FROM automation.define('g-work', trigger => automation.on_created('g_item'), steps => ARRAY[
    automation.sql('SELECT 1 / (3 - {{ new.id }})', id => 'divide'), automation.branch('new.id = 2', yes => 'wait', no => NULL),
    automation.stop(), automation.delay('1 hour', id => 'wait')]);
SELECT automation.drain();
-- nobody listens: nothing is written, whatever listens to everything
SELECT name FROM automation.define('g-all', trigger => automation.on_event('#'), status => 'draft', steps => ARRAY[automation.sql('SELECT 1')]);
SELECT ok FROM automation.activate('g-all');
SELECT told_of() AS before \gset
INSERT INTO item VALUES (1), (3);
SELECT happened();
SELECT status, count(*) FROM automation.runs WHERE automation LIKE 'g-%' GROUP BY status ORDER BY status;
SELECT told_of() - :before AS told;
SELECT automation.drop_automation('g-all');
-- a draft and a paused one do not listen
SELECT name FROM automation.define('g-fail', trigger => automation.on_event('automation.failed'), status => 'draft', steps => ARRAY[says()]);
SELECT told_of() AS before \gset
DELETE FROM item; INSERT INTO item VALUES (1), (3);
SELECT happened();
SELECT told_of() - :before AS told;
-- somebody listens: to failures alone (R001-14)
SELECT ok FROM automation.activate('g-fail');
SELECT happened();
SELECT told_of() AS before \gset
DELETE FROM item; INSERT INTO item VALUES (1), (3);
SELECT happened();
SELECT told_of() - :before AS told;
SELECT topic, kind, entity_id, depth, actor, payload - 'run' - 'took_ms' FROM automation.events WHERE topic = 'automation.failed';
SELECT automation.drop_automation('g-fail');
-- to everything: a run that ends, one that waits and ends later, one that is cancelled (R001-14)
SELECT name FROM automation.define('g-listen', trigger => automation.on_event('automation.#', filter => 'payload.automation like ''g-%'''), steps => ARRAY[says()]);
SELECT automation.set_clock('2030-01-01 12:00+00') IS NOT NULL;
DELETE FROM item; INSERT INTO item VALUES (1);
SELECT happened();
INSERT INTO item VALUES (2);
SELECT happened();
SELECT automation.advance('2 hours') IS NOT NULL;
SELECT happened();
DELETE FROM item; INSERT INTO item VALUES (2);
SELECT happened();
SELECT automation.cancel_run(id) FROM automation.runs WHERE automation = 'g-work' AND status = 'waiting';
SELECT happened();
INSERT INTO item VALUES (3);
SELECT happened();
-- a run that ends another one in a step forgets nothing of its own
SELECT name FROM automation.define('g-long', trigger => automation.on_event('g.long'), steps => ARRAY[automation.delay('1 hour', id => 'long')]);
SELECT name FROM automation.define('g-end', trigger => automation.on_event('g.end'), steps => ARRAY[
    automation.sql('SELECT 1', id => 'first'), automation.sql('SELECT automation.cancel_run(''run.automation = "g-long"'')', id => 'cancel')]);
SELECT automation.emit('g.long') > 0;
SELECT happened();
SELECT automation.emit('g.end') > 0;
SELECT happened();
SELECT automation.drop_automation('g-long'), automation.drop_automation('g-end');
-- what becomes of an automation (R003-19); a repeat is none (R003-18)
SELECT ok, applied FROM automation.pause('g-work');
SELECT ok, applied FROM automation.pause('g-work');
SELECT ok, applied FROM automation.revert_to_draft('g-work');
SELECT ok, applied FROM automation.activate('g-work');
SELECT ok, applied FROM automation.pause('g-work');
-- also if it is done by defining it
SELECT status FROM automation.define('g-work', trigger => automation.on_created('g_item'), status => 'active', steps => ARRAY[automation.sql('SELECT 1 / (3 - {{ new.id }})', id => 'divide')]);
SELECT happened();
SELECT action, details FROM automation.audit_log WHERE automation = 'g-work' ORDER BY at DESC LIMIT 3;

-- no loop: the listener fails itself, and hears nothing of it; another listener does, once
SELECT name FROM automation.define('g-listen', trigger => automation.on_event('automation.failed'), steps => ARRAY[says(), automation.sql('SELECT 1 / 0')]);
SELECT name FROM automation.define('g-other', trigger => automation.on_event('automation.failed'), steps => ARRAY[says(), automation.sql('SELECT 1 / 0')]);
DELETE FROM item; INSERT INTO item VALUES (3);
SELECT happened();
SELECT automation, status, count(*) FROM automation.runs WHERE automation IN ('g-listen', 'g-other') AND status = 'failed' GROUP BY 1, 2 ORDER BY 1;
-- nor round about: the listener writes what starts the failing one
SELECT automation.drop_automation('g-other');
SELECT name FROM automation.define('g-listen', trigger => automation.on_event('automation.failed'), steps => ARRAY[says(),
    automation.sql('INSERT INTO item SELECT 3 WHERE NOT EXISTS (SELECT FROM item WHERE id = 3)'), automation.sql('DELETE FROM item'),
    automation.sql('INSERT INTO item VALUES (3)')]);
DELETE FROM item; INSERT INTO item VALUES (3);
SELECT happened();

-- a wait hears them, also of what it started itself
SELECT automation.drop_automation('g-listen');
SELECT name FROM automation.define('g-wait', trigger => automation.on_call(), steps => ARRAY[
    automation.publish('g.go'), automation.wait_for_event('automation.completed', filter => 'payload.automation = ''g-went''', id => 'w')]);
SELECT name FROM automation.define('g-went', trigger => automation.on_event('g.go'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.start_run('g-wait') AS run \gset
SELECT automation.drain() > 0;
SELECT status FROM automation.runs WHERE id = :run;
SELECT result #>> '{event,topic}', result #>> '{event,payload,automation}', result #> '{event,payload,chain}' FROM automation.run_steps WHERE run_id = :run AND step = 'w';
SELECT told_of() AS before \gset
SELECT automation.emit('g.go') > 0;
SELECT automation.drain() > 0;
SELECT told_of() - :before AS told;

-- for the eyes of those who may see the automation, and of its tenant
CREATE ROLE regress_g_one LOGIN;
CREATE ROLE regress_g_two LOGIN;
GRANT USAGE ON SCHEMA eng TO regress_g_one, regress_g_two;
GRANT ALL ON ALL TABLES IN SCHEMA eng TO regress_g_one, regress_g_two;
GRANT ALL ON ALL SEQUENCES IN SCHEMA eng TO regress_g_one, regress_g_two;
SELECT name FROM automation.define('g-one', trigger => automation.on_event('g.fail'), run_as => 'regress_g_one', steps => ARRAY[automation.sql('SELECT 1 / 0')]);
SELECT name FROM automation.define('g-mine', trigger => automation.on_event('automation.failed'), run_as => 'regress_g_one', steps => ARRAY[says()]);
SELECT name FROM automation.define('g-theirs', trigger => automation.on_event('automation.*'), run_as => 'regress_g_two', steps => ARRAY[says()]);
SELECT name FROM automation.define('g-acme', trigger => automation.on_event('automation.*'), run_as => 'regress_g_one', tenant => 'acme', steps => ARRAY[says()]);
SELECT automation.emit('g.fail') > 0;
SELECT happened();
SELECT automation.emit('g.fail', tenant => 'acme') > 0;
SELECT happened();
SELECT automation.emit('g.fail', tenant => 'other') > 0;
SELECT happened();
GRANT regress_g_one TO regress_g_two;
SELECT automation.emit('g.fail') > 0;
SELECT happened();

-- a topic that the engine does not know
SELECT notices FROM automation.define('g-typo', trigger => automation.on_event('automation.faild'), steps => ARRAY[says()]);
SELECT notices FROM automation.define('g-typo', triggers => ARRAY[automation.on_event('automation.paused'), automation.on_event('automation.step.*')], steps => ARRAY[says()]);
-- nobody else can tell such things
SELECT tried($$ SELECT automation.emit('automation.failed') $$);
SELECT tried($$ SELECT * FROM automation.define('g-lie', trigger => automation.on_call(), steps => ARRAY[automation.publish('automation.failed')]) $$);

SELECT automation.set_clock(NULL) IS NULL;
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'g-%';
SELECT automation.unwatch_table('item');
SET client_min_messages = warning;
DROP SCHEMA eng CASCADE;
DROP OWNED BY regress_g_one, regress_g_two;
DROP ROLE regress_g_one, regress_g_two;
