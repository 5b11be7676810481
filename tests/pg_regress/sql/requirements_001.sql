-- Behaviours of the second source document (events and automations over a graph) that no test elsewhere shows.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
SET timezone = 'UTC';
CREATE SCHEMA gra;
SET search_path = gra, public;
CREATE TABLE person (id int PRIMARY KEY, name text);
CREATE TABLE session (id int PRIMARY KEY, status text NOT NULL DEFAULT 'open', active boolean NOT NULL DEFAULT true, expires_at timestamptz NOT NULL);
CREATE TABLE welcome (person int PRIMARY KEY, tries int NOT NULL DEFAULT 1);
CREATE TABLE effect (seq serial, what text);
SELECT automation.watch_table('person', kind => 'g_person');

-- R001-1, R001-2: a write is heard by every automation that listens, with nothing but this server
-- R001-4: the writer waits for none of them: what they do comes after its commit, and not in its transaction
SELECT name FROM automation.define('g-one', trigger => automation.on_created('g_person'), steps => ARRAY[automation.sql($$ INSERT INTO effect (what) VALUES ('one ' || {{ new.id }}) $$)]);
SELECT name FROM automation.define('g-two', trigger => automation.on_event('g_person.#'), steps => ARRAY[automation.sql($$ INSERT INTO effect (what) VALUES ('two ' || {{ new.id }}) $$)]);
INSERT INTO person VALUES (1, 'Ann');
SELECT count(*) AS effects FROM effect;
SELECT automation.drain() > 0;
SELECT what FROM effect ORDER BY what;
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'g-%';

-- R001-50: an effect that is keyed by what it is about collapses: the person is welcomed once, by whatever event and however often
SELECT name FROM automation.define('g-welcome', triggers => ARRAY[automation.on_changed('g_person'), automation.on_event('g.greet')], steps => ARRAY[
    automation.sql($$ INSERT INTO welcome (person) VALUES (coalesce({{ new.id }}::int, {{ payload.person }}::int)) ON CONFLICT (person) DO UPDATE SET tries = welcome.tries + 1 $$)]);
INSERT INTO person VALUES (2, 'Bob');
UPDATE person SET name = 'Rob' WHERE id = 2;
SELECT automation.emit('g.greet', '{"person": 2}') > 0;
SELECT automation.drain() > 0;
SELECT status, count(*) FROM automation.runs WHERE automation = 'g-welcome' GROUP BY status;
SELECT person, tries FROM welcome ORDER BY person;
SELECT automation.drop_automation('g-welcome');

-- R001-57: a purge compares a deadline with now and asks for status and active as well; what a late or missed run leaves, the next one takes
BEGIN;
SELECT automation.set_clock('2030-01-01 00:00+00') IS NULL AS set;
INSERT INTO session (id, status, active, expires_at) VALUES (1, 'open', true, '2030-01-01 00:30+00'), (2, 'open', true, '2030-01-01 01:30+00'), (3, 'kept', true, '2030-01-01 00:30+00'), (4, 'open', false, '2030-01-01 00:30+00');
SELECT name FROM automation.define('g-purge', trigger => automation.on_cron('0 0 * * * *'), steps => ARRAY[
    automation.sql($$ DELETE FROM session WHERE status = 'open' AND active AND expires_at < {{ now() }}::timestamptz RETURNING id $$, id => 'purge')]);
SELECT automation.set_clock('2030-01-01 00:59:59+00') IS NOT NULL, automation.drain();
SELECT id FROM session ORDER BY id;
SELECT automation.set_clock('2030-01-01 01:00+00') IS NOT NULL, automation.drain() > 0;
SELECT id FROM session ORDER BY id;
-- four ticks later, of which none was served
SELECT automation.set_clock('2030-01-01 05:10+00') IS NOT NULL, automation.drain() > 0;
SELECT id FROM session ORDER BY id;
SELECT r.status, s.result -> 'count' AS purged FROM automation.runs AS r JOIN automation.run_steps AS s ON s.run_id = r.id WHERE r.automation = 'g-purge' ORDER BY r.id;
ROLLBACK;

-- R001-60: dedup is for events. Ticks and starts by hand all run, though every one of them has the same key
BEGIN;
SELECT automation.set_clock('2030-01-01 00:00+00') IS NULL AS set;
SELECT name FROM automation.define('g-tick', dedup => automation.dedup('"always the same"', '10 minutes'), triggers => ARRAY[automation.on_cron('0 * * * * *'), automation.on_event('g.tick')], steps => ARRAY[
    automation.sql($$ INSERT INTO effect (what) VALUES ({{ run.trigger }}) $$)]);
TRUNCATE effect;
SELECT automation.emit('g.tick') > 0, automation.emit('g.tick') > 0, automation.drain() > 0;
SELECT automation.set_clock('2030-01-01 00:01+00') IS NOT NULL, automation.drain() > 0;
SELECT automation.set_clock('2030-01-01 00:02+00') IS NOT NULL, automation.drain() > 0;
SELECT automation.start_run('g-tick') > 0, automation.start_run('g-tick') > 0, automation.drain() > 0;
SELECT r.trigger, r.status, r.ended_reason, count(*) FROM automation.runs AS r WHERE r.automation = 'g-tick' GROUP BY 1, 2, 3 ORDER BY 1, 2;
ROLLBACK;

SELECT automation.unwatch_table('person');
SET client_min_messages = warning;
DROP SCHEMA gra CASCADE;
