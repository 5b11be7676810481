-- "state ... for": how long a field has been what it is, of entities with and without a table.
\set SHOW_CONTEXT never
CREATE SCHEMA held;
SET search_path = held, public;
CREATE TABLE machine (id int PRIMARY KEY, status text, note text, doc jsonb, secret text);
CREATE TABLE seen (what text);
SELECT automation.watch_table('machine', kind => 'l_machine', ignore => '{secret}');
SELECT automation.set_state('l_flag', 'f1', '{"status": "on", "note": "x"}') IS NOT NULL AS flag;
INSERT INTO machine VALUES (1, 'up', 'a', '{"city": "Oslo"}', 's'), (2, 'up', 'b', '{"city": "Oslo"}', 's');
-- asks all of its conditions whenever it is emitted to
CREATE FUNCTION ask(name text, condition text) RETURNS text LANGUAGE sql
AS $$ SELECT name FROM automation.define($1, trigger => automation.on_event('l.ask'), condition => $2, steps => ARRAY[automation.sql('INSERT INTO held.seen VALUES ({{ run.automation }})')]) $$;
SELECT ask('l-machine', '{"state": {"kind": "l_machine", "id": "1", "is": "up", "for": "15 minutes"}}');
SELECT ask('l-both', '{"state": {"kind": "l_machine", "id": ["1", "2"], "is": ["up", "busy"], "for": "15 minutes"}}');
SELECT ask('l-city', '{"state": {"kind": "l_machine", "id": "2", "field": "doc.city", "is": "Oslo", "for": "PT15M"}}');
SELECT ask('l-flag', '{"state": {"kind": "l_flag", "id": "f1", "is": "on", "for": "15 minutes"}}');
SELECT ask('l-secret', '{"state": {"kind": "l_machine", "id": "1", "field": "secret", "is": "s", "for": 1}}');
CREATE FUNCTION answers() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM held.seen;
    PERFORM automation.emit('l.ask');
    PERFORM automation.drain();
    RETURN (SELECT coalesce(string_agg(what, ' ' ORDER BY what), 'none') FROM held.seen);
END $$;
-- what has been written down so far happened that much earlier
CREATE PROCEDURE pass(by interval) LANGUAGE sql AS $$
    UPDATE automation_internal.field_change SET changed_at = changed_at - by;
    UPDATE automation_internal.tracked_field SET since = since - by;
    UPDATE automation_internal.entity_state SET changed_at = changed_at - by;
    UPDATE automation_internal.entity_kind SET created_at = created_at - by;
$$;
-- nobody can know yet
SELECT answers();
SELECT kind, field FROM automation_internal.tracked_field ORDER BY 1, 2;
-- what was not seen to change since it is followed has lasted at least that long
CALL pass('14 minutes');
SELECT answers();
CALL pass('2 minutes');
SELECT answers();
-- another field changes: nothing begins anew
UPDATE machine SET note = 'c';
SELECT automation.patch_state('l_flag', 'f1', '{"note": "y"}') IS NOT NULL AS changed;
SELECT answers();
-- the field itself changes, away and back: it begins anew, though it is what it was
UPDATE machine SET status = 'down' WHERE id = 1;
SELECT answers();
UPDATE machine SET status = 'up' WHERE id = 1;
UPDATE machine SET doc = '{"city": "Oslo", "zip": 1}' WHERE id = 2;
SELECT automation.patch_state('l_flag', 'f1', '{"status": "off"}') IS NOT NULL AS off, automation.patch_state('l_flag', 'f1', '{"status": "on"}') IS NOT NULL AS "on";
SELECT answers();
SELECT kind, field, entity_id FROM automation_internal.field_change ORDER BY 1, 2, 3;
CALL pass('16 minutes');
SELECT answers();
-- the same state again is no change
SELECT automation.set_state('l_flag', 'f1', automation.state('l_flag', 'f1')) IS NULL AS unchanged;
SELECT answers();
-- what the run itself has changed counts, too
SELECT ask('l-later', '{"state": {"kind": "l_machine", "id": "1", "is": "up", "for": "15 minutes"}}');
SELECT name FROM automation.define('l-own', trigger => automation.on_event('l.own'), steps => ARRAY[
    automation.sql($$ UPDATE held.machine SET status = 'down' WHERE id = 1 $$), automation.sql($$ UPDATE held.machine SET status = 'up' WHERE id = 1 $$),
    automation.sql($$ INSERT INTO held.seen VALUES ('too early') $$, condition => '{"state": {"kind": "l_machine", "id": "1", "is": "up", "for": "15 minutes"}}'),
    automation.sql($$ INSERT INTO held.seen VALUES ('now') $$, condition => '{"state": {"kind": "l_machine", "id": "1", "is": "up"}}')]);
SELECT automation.emit('l.own') IS NOT NULL AS emitted;
SELECT automation.route(), automation.dispatch() IS NOT NULL AS dispatched;
SELECT what FROM seen WHERE what NOT LIKE 'l-%';
SELECT answers();
CALL pass('16 minutes');
-- paused automations ask nothing; when they are back, what happened meanwhile is not known
SELECT count(ok) FROM (VALUES ('l-machine'), ('l-both'), ('l-later'), ('l-own')) AS n (name), automation.pause(n.name);
SELECT answers();
SELECT kind, field FROM automation_internal.tracked_field ORDER BY 1, 2;
UPDATE machine SET status = 'down' WHERE id = 1;
UPDATE machine SET status = 'up' WHERE id = 1;
SELECT answers();
SELECT count(ok) FROM (VALUES ('l-machine'), ('l-both'), ('l-later')) AS n (name), automation.resume(n.name);
SELECT answers();
CALL pass('16 minutes');
SELECT answers();
-- a change that is committed but not routed yet is known as well: the run is queued, then the machine goes down and up
SELECT automation.route() >= 0 AS nothing_is_left;
SELECT automation.emit('l.ask') IS NOT NULL AS emitted;
SELECT automation.emit('l.nobody') IS NOT NULL AS emitted;
SELECT automation.route(1) AS routed;
UPDATE machine SET status = 'down' WHERE id = 1;
UPDATE machine SET status = 'up' WHERE id = 1;
DELETE FROM seen;
SELECT automation.dispatch() AS runs;
SELECT what FROM seen ORDER BY what;
-- a routing that is rolled back has followed nothing, and the next one begins again
SELECT ask('l-note', '{"state": {"kind": "l_machine", "id": "1", "field": "note", "is": "c", "for": "15 minutes"}}');
BEGIN;
SELECT answers();
ROLLBACK;
SELECT answers();
SELECT ask('l-part', '{"state": {"kind": "l_machine", "id": "1", "field": "doc", "is": null, "for": "15 minutes"}}');
BEGIN;
SAVEPOINT s;
SELECT answers();
ROLLBACK TO s;
COMMIT;
SELECT answers();
SELECT kind, field FROM automation_internal.tracked_field ORDER BY 1, 2;
CALL pass('16 minutes');
SELECT answers();
-- after TRUNCATE and after watching differently, what was known is not known any more
INSERT INTO machine VALUES (3, 'up', 'c', NULL, 's');
TRUNCATE machine;
INSERT INTO machine VALUES (1, 'up', 'a', '{"city": "Oslo"}', 's'), (2, 'up', 'b', '{"city": "Oslo"}', 's');
SELECT answers();
CALL pass('16 minutes');
SELECT answers();
SELECT automation.watch_table('machine', kind => 'l_machine', ignore => '{note}');
SELECT answers();
CALL pass('16 minutes');
SELECT answers();
-- what no condition can ask about is dropped
SELECT count(*) > 0 AS changes FROM automation_internal.field_change;
CALL pass('40 days');
\c -
SET search_path = held, public;
SELECT answers();
SELECT count(*) AS changes FROM automation_internal.field_change;
SELECT automation.drop_automation(name) FROM automation.automations WHERE name LIKE 'l-%' ORDER BY name;
SELECT automation.emit('l.ask') IS NOT NULL AS emitted, automation.drain() IS NOT NULL AS drained;
SELECT count(*) AS followed FROM automation_internal.tracked_field;
SELECT count(*) AS changes FROM automation_internal.field_change;
SELECT automation.unwatch_table('machine');
SET client_min_messages = warning;
DROP SCHEMA held CASCADE;
