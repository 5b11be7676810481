-- Triggers with hold_for: they fire if what fired them is still so after a while (R000-30, R000-48, D6, D22; Home
-- Assistant's state and numeric_state with for)
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
CREATE SCHEMA holds;
SET search_path = holds, public;
SET timezone = 'UTC';
CREATE TABLE door (id int PRIMARY KEY, state text, battery int);
CREATE TABLE effect (seq serial, what text);
CREATE TABLE told (run bigint);
SELECT automation.watch_table('door', kind => 'h_door');
CREATE FUNCTION opened(what text DEFAULT 'open') RETURNS automation.step[] LANGUAGE sql AS
$$ SELECT ARRAY[automation.sql(format('INSERT INTO holds.effect (what) VALUES (%L || {{ event.id }})', what || ' '))] $$;
-- lets it be so many minutes after midnight, does what is to be done, and tells what came of it and what is held
CREATE FUNCTION at(minute numeric) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM automation.set_clock(timestamptz '2030-01-01 00:00+00' + minute * interval '1 minute');
    PERFORM automation.drain();
    RETURN QUERY SELECT 'fires: ' || what FROM holds.effect ORDER BY seq;
    DELETE FROM holds.effect;
    RETURN QUERY SELECT concat_ws(' ', r.entity, r.status || ',', r.ended_reason || ':', coalesce(r.detail, r.message))
                   FROM automation.runs AS r
                  WHERE r.status <> 'completed' AND r.automation LIKE 'h-%' AND r.id NOT IN (SELECT run FROM holds.told) ORDER BY r.id;
    INSERT INTO holds.told SELECT r.id FROM automation.runs AS r WHERE r.automation LIKE 'h-%' AND r.id NOT IN (SELECT run FROM holds.told);
    RETURN QUERY SELECT format('%s %s held for %s from %s to %s', w.automation, w.step, w.key, to_char(w.since, 'HH24:MI'), to_char(w.deadline, 'HH24:MI'))
                   FROM automation.waiting AS w WHERE w.kind = 'hold_for' ORDER BY w.run_id;
END $$;

-- it is held for its time, and fires once, with the event that began it (R000-30)
SELECT name, version FROM automation.define('h-open', trigger => automation.on_state('h_door', 'state', to_value => 'open', hold_for => '5 minutes', id => 'open'), steps => opened());
INSERT INTO door VALUES (1, 'closed', 90), (2, 'closed', 90);
SELECT at(0);
UPDATE door SET state = 'open' WHERE id = 1;
SELECT at(1);
SELECT automation, reason, to_char(due_at, 'HH24:MI'), due_in FROM automation.timers;
SELECT run_id IS NOT NULL AS numbered, automation, step, waiting_for, refs, kind, key, entity, frozen FROM automation.waiting;
SELECT at(5.99);
SELECT at(6);
SELECT at(20);
SELECT trigger, status, entity, took FROM automation.runs WHERE automation = 'h-open';

-- firing again and other changes keep the deadline; each entity has its own
UPDATE door SET state = 'closed';
SELECT at(30);
UPDATE door SET state = 'open' WHERE id = 1;
SELECT at(31);
UPDATE door SET battery = 80 WHERE id = 1;
UPDATE door SET state = 'open' WHERE id = 2;
SELECT at(33);
SELECT at(36);
SELECT at(38);
-- any change that makes it false cancels, also one of a moment; coming back begins anew
UPDATE door SET state = 'closed';
SELECT at(40);
UPDATE door SET state = 'open' WHERE id = 1;
SELECT at(41);
UPDATE door SET state = 'closed' WHERE id = 1;
SELECT at(42);
UPDATE door SET state = 'open' WHERE id = 1;
SELECT at(43);
UPDATE door SET state = 'closed' WHERE id = 1;
UPDATE door SET state = 'open' WHERE id = 1;
SELECT at(44);
SELECT at(48);
SELECT at(49);
-- in one transaction
BEGIN;
UPDATE door SET state = 'closed';
SELECT at(50);
UPDATE door SET state = 'open';
SELECT at(51);
UPDATE door SET state = 'closed' WHERE id = 2;
SELECT automation.advance('10 minutes') IS NOT NULL AS advanced, automation.drain() AS done;
SELECT what FROM effect ORDER BY what;
ROLLBACK;
SELECT at(52);
-- removal cancels; so does TRUNCATE, for all
UPDATE door SET state = 'closed';
SELECT at(60);
UPDATE door SET state = 'open';
SELECT at(61);
DELETE FROM door WHERE id = 1;
SELECT at(62);
TRUNCATE door;
SELECT at(63);
SELECT at(70);
-- what fires and is truncated before anybody has looked is not held
INSERT INTO door VALUES (1, 'closed'), (2, 'closed');
SELECT at(71);
UPDATE door SET state = 'open';
TRUNCATE door;
SELECT at(72);
-- but what comes after it is
INSERT INTO door VALUES (1, 'closed');
UPDATE door SET state = 'open';
TRUNCATE door;
INSERT INTO door VALUES (1, 'closed');
UPDATE door SET state = 'open';
SELECT at(73);
SELECT at(78);
TRUNCATE door;
-- a change at the deadline or after it comes too late, also if the timer is late
INSERT INTO door VALUES (1, 'closed'), (2, 'closed');
SELECT at(80);
UPDATE door SET state = 'open';
SELECT at(81);
UPDATE door SET state = 'closed' WHERE id = 1;
SELECT at(87);
SELECT at(90);
UPDATE door SET state = 'closed';
SELECT at(91);
-- what nobody holds anything for costs nothing but its event
SELECT count(*) AS queued FROM automation_internal.dispatch;
UPDATE door SET battery = 70;
SELECT automation.route() AS routed;
SELECT count(*) AS queued FROM automation_internal.dispatch;
UPDATE door SET state = 'open' WHERE id = 1;
UPDATE door SET battery = 71;
SELECT automation.route() AS routed;
SELECT d.reason, e.entity_id FROM automation.dispatches AS d JOIN automation.events AS e ON e.id = d.event_id ORDER BY d.id;
SELECT at(92);
UPDATE door SET battery = 72;
SELECT automation.route() AS routed;
SELECT d.reason, e.entity_id FROM automation.dispatches AS d JOIN automation.events AS e ON e.id = d.event_id ORDER BY d.id;
SELECT at(93);

-- pausing, reverting, dropping and redefining end it with a reason; redefining something else does not
SELECT applied FROM automation.pause('h-open');
SELECT at(94);
SELECT applied FROM automation.resume('h-open');
SELECT at(98);
UPDATE door SET state = 'closed';
SELECT at(100);
UPDATE door SET state = 'open' WHERE id = 1;
SELECT at(101);
SELECT version FROM automation.define('h-open', trigger => automation.on_state('h_door', 'state', to_value => 'open', hold_for => '5 minutes', id => 'open'), steps => opened('still open'));
SELECT at(105);
SELECT at(106);
UPDATE door SET state = 'closed';
SELECT at(110);
UPDATE door SET state = 'open' WHERE id = 1;
SELECT at(111);
SELECT version FROM automation.define('h-open', trigger => automation.on_state('h_door', 'state', to_value => 'open', hold_for => '10 minutes', id => 'open'), steps => opened());
SELECT at(112);
UPDATE door SET state = 'open' WHERE id = 2;
SELECT at(113);
SELECT version FROM automation.define('h-open', trigger => automation.on_state('h_door', 'state', to_value => 'open', hold_for => '10 minutes', id => 'wide-open'), steps => opened());
SELECT at(114);
UPDATE door SET state = 'closed';
UPDATE door SET state = 'open' WHERE id = 2;
SELECT at(115);
SELECT automation.drop_automation('h-open');
SELECT at(200);
SELECT count(*) AS timers FROM automation_internal.timer WHERE reason = 'h';

-- from alone: as long as it is not what it was. Without values: as long as it is what it became
SELECT name FROM automation.define('h-from', trigger => automation.on_state('h_door', 'state', from_value => 'closed', hold_for => '5 minutes', id => 'left'), steps => opened('from'));
SELECT name FROM automation.define('h-any', trigger => automation.on_state('h_door', 'state', hold_for => '5 minutes', id => 'any'), steps => opened('any'));
TRUNCATE door;
INSERT INTO door VALUES (3, 'closed');
SELECT at(210);
SELECT at(220);
UPDATE door SET state = 'open';
SELECT at(221);
UPDATE door SET state = 'ajar';
SELECT at(223);
SELECT at(226);
SELECT at(230);
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'h-%';

-- a filter is part of what must stay so, and is compared with how it was before; the length can be computed
SELECT name FROM automation.define('h-filter', trigger => (automation.on_updated('h_door', filter => 'new.state becomes ''open'' and new.battery < 50', id => 'low') || '{"hold_for": "{{ new.battery }} minutes"}')::automation.trigger, steps => opened('low'));
UPDATE door SET state = 'closed', battery = 5;
SELECT at(300);
UPDATE door SET state = 'open';
SELECT at(301);
UPDATE door SET battery = 4;
SELECT at(302);
SELECT at(306);
UPDATE door SET state = 'closed', battery = 10;
SELECT at(310);
UPDATE door SET state = 'open';
SELECT at(311);
UPDATE door SET battery = 60;
SELECT at(312);
UPDATE door SET state = 'closed', battery = NULL;
SELECT at(320);
UPDATE door SET state = 'open', battery = -1;
SELECT at(321);
SELECT automation.drop_automation('h-filter');

-- the condition is looked at when the time is over, not when it begins (R000-48)
CREATE TABLE house (id int PRIMARY KEY, empty boolean);
SELECT automation.watch_table('house', kind => 'h_house');
INSERT INTO house VALUES (1, false);
SELECT name FROM automation.define('h-condition', condition => 'state.h_house["1"].empty and new.battery > 10', trigger => automation.on_state('h_door', 'state', to_value => 'open', hold_for => '5 minutes', id => 'open'), steps => opened('empty'));
UPDATE door SET state = 'closed', battery = 5;
SELECT at(400);
UPDATE door SET state = 'open';
SELECT at(401);
UPDATE house SET empty = true;
UPDATE door SET battery = 20;
SELECT at(402);
SELECT at(406);
UPDATE door SET state = 'closed';
SELECT at(407);
UPDATE door SET state = 'open';
SELECT at(408);
UPDATE house SET empty = false;
SELECT at(413);
SELECT automation.drop_automation('h-condition');

-- what only the executor can decide: a filter that reads something else, in no particular order of runs
SELECT name FROM automation.define('h-asks', ordering => 'none', trigger => automation.on_changed('h_door', filter => 'new.state == ''open'' and state.h_house["1"].empty', hold_for => '5 minutes', id => 'open'), steps => opened('asks'));
UPDATE house SET empty = true;
UPDATE door SET state = 'closed';
SELECT at(450);
UPDATE door SET state = 'open';
SELECT at(451);
UPDATE door SET battery = 21;
SELECT at(452);
UPDATE house SET empty = false;
SELECT at(453);
UPDATE door SET battery = 22;
SELECT at(454);
UPDATE house SET empty = true;
UPDATE door SET battery = 23;
SELECT at(455);
UPDATE house SET empty = false;
SELECT at(460);
SELECT automation.drop_automation('h-asks');

-- created, deleted, changed: the entity stays, or stays away
SELECT name FROM automation.define('h-life', triggers => ARRAY[
    automation.on_created('h_door', hold_for => '5 minutes', id => 'came'),
    automation.on_deleted('h_door', hold_for => '5 minutes', id => 'went')], steps => ARRAY[automation.sql('INSERT INTO holds.effect (what) VALUES ({{ run.trigger }} || '' '' || {{ event.id }})')]);
TRUNCATE door;
INSERT INTO door VALUES (4, 'x'), (5, 'x');
SELECT at(500);
DELETE FROM door WHERE id = 4;
SELECT at(501);
INSERT INTO door VALUES (4, 'y');
SELECT at(502);
DELETE FROM door WHERE id = 5;
SELECT at(503);
SELECT at(507);
TRUNCATE door;
SELECT at(508);
SELECT automation.drop_automation('h-life');

-- events without an entity are told apart by topic; one that the filter refuses cancels
SELECT name FROM automation.define('h-event', trigger => automation.on_event('h.sensor.*', filter => 'payload.v > 30', hold_for => '5 minutes', id => 'hot'), steps => ARRAY[automation.sql('INSERT INTO holds.effect (what) VALUES (''hot '' || {{ event.topic }})')]);
SELECT count(automation.emit('h.sensor.' || s, '{"v": 31}')) FROM unnest(ARRAY['a', 'b']) AS s;
SELECT at(600);
SELECT automation.emit('h.sensor.a', '{"v": 40}') IS NOT NULL AS a, automation.emit('h.sensor.b', '{"v": 30}') IS NOT NULL AS b;
SELECT at(603);
SELECT at(605);
SELECT automation.drop_automation('h-event');

-- a number must stay inside; a dip of one change cancels and a new crossing begins anew (numeric_state with for)
CREATE TABLE sensor (id int PRIMARY KEY, celsius numeric, samples int);
SELECT automation.watch_table('sensor', kind => 'h_sensor');
SELECT name FROM automation.define('h-hot', trigger => automation.on_numeric('h_sensor', 'celsius', above => 30, hold_for => '5 minutes', id => 'hot'), steps => opened('hot'));
INSERT INTO sensor VALUES (1, 25);
SELECT at(700);
UPDATE sensor SET celsius = 31;
SELECT at(701);
UPDATE sensor SET celsius = 35;
SELECT at(702);
UPDATE sensor SET celsius = 30;
UPDATE sensor SET celsius = 31;
SELECT at(703);
SELECT at(708);
UPDATE sensor SET celsius = 32;
SELECT at(720);
SELECT automation.drop_automation('h-hot');

-- what cannot be worked out neither fires nor arms: outside, unknown, inside fires; inside, unknown, inside does not
SELECT name FROM automation.define('h-mean', trigger => automation.on_numeric('h_sensor', value => 'new.celsius / new.samples', above => 10), steps => opened('mean'));
-- the same with something else to ask, so that the executor decides
SELECT name FROM automation.define('h-mean-asked', trigger => automation.on_numeric('h_sensor', value => 'new.celsius / new.samples + (state.h_house["1"].empty ? 0 : 0)', above => 10), steps => opened('asked'), ordering => 'none');
CREATE FUNCTION mean(celsius numeric, samples int) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    UPDATE holds.sensor AS s SET celsius = mean.celsius, samples = mean.samples;
    PERFORM automation.drain();
    RETURN QUERY SELECT 'fires: ' || what FROM holds.effect ORDER BY what;
    DELETE FROM holds.effect;
    RETURN QUERY SELECT 'remembered: ' || m.armed FROM automation_internal.numeric_memory AS m ORDER BY m.automation_id;
END $$;
SELECT mean(5, 1);
SELECT mean(5, 0);
SELECT mean(15, 1);
SELECT mean(15, 0);
SELECT mean(16, 1);
SELECT mean(1, 1);
SELECT mean(1, 0);
SELECT mean(2, 0);
SELECT mean(20, 1);
-- what was remembered before a pause counts for nothing
SELECT mean(1, 1);
SELECT mean(1, 0);
SELECT count(ok) FROM unnest(ARRAY['h-mean', 'h-mean-asked']) AS name, automation.pause(name);
SELECT mean(2, 0);
SELECT count(ok) FROM unnest(ARRAY['h-mean', 'h-mean-asked']) AS name, automation.resume(name);
SELECT mean(20, 1);
SELECT code, count(*) > 0 AS told FROM automation.log WHERE automation LIKE 'h-mean%' GROUP BY code;
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'h-%';

-- a step that fails, a table that is not watched all the time, a right that is revoked
CREATE ROLE holder LOGIN;
GRANT USAGE ON SCHEMA holds TO holder;
GRANT SELECT ON door TO holder;
GRANT INSERT ON effect TO holder;
GRANT USAGE ON effect_seq_seq TO holder;
SELECT name FROM automation.define('h-owner', trigger => automation.on_state('h_door', 'state', to_value => 'open', hold_for => '5 minutes', id => 'open'), steps => opened('owner'), run_as => 'holder', breaker => 0);
INSERT INTO door VALUES (1, 'closed'), (2, 'closed');
SELECT at(800);
UPDATE door SET state = 'open';
SELECT at(801);
SELECT automation.watch_table('door', kind => 'h_door', ignore => '{battery}');
SELECT at(806);
SELECT automation.watch_table('door', kind => 'h_door');
UPDATE door SET state = 'closed';
SELECT at(807);
UPDATE door SET state = 'open';
SELECT at(808);
REVOKE SELECT ON door FROM holder;
UPDATE door SET battery = 3 WHERE id = 1;
SELECT at(813);
UPDATE door SET state = 'closed';
UPDATE door SET state = 'open';
SELECT at(814);
GRANT SELECT ON door TO holder;
-- whose automation it becomes is not who held
UPDATE door SET state = 'closed';
UPDATE door SET state = 'open' WHERE id = 1;
SELECT at(820);
SELECT version FROM automation.define('h-owner', trigger => automation.on_state('h_door', 'state', to_value => 'open', hold_for => '5 minutes', id => 'open'), steps => opened('new owner'), run_as => current_user::text, breaker => 0);
SELECT at(825);
-- a clock that is set back does not lose it
UPDATE door SET state = 'closed';
UPDATE door SET state = 'open' WHERE id = 1;
SELECT at(830);
SELECT automation.set_clock('2030-01-02') IS NOT NULL AS set, automation.run_timers() AS due;
SELECT at(831);
SELECT at(835);

-- by the clock on the wall. What was committed before a deadline beats it, also if it is routed after it
SELECT automation.set_clock(NULL);
CREATE PROCEDURE time_is_up() LANGUAGE sql AS $$
    UPDATE automation_internal.timer SET due_at = clock_timestamp() WHERE reason = 'h';
    UPDATE automation_internal.dwell AS d SET deadline = t.due_at FROM automation_internal.timer AS t WHERE t.run_id = d.run_id;
$$;
CREATE FUNCTION now() RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM automation.drain();
    RETURN QUERY SELECT 'fires: ' || what FROM holds.effect ORDER BY seq;
    DELETE FROM holds.effect;
    RETURN QUERY SELECT concat_ws(' ', r.entity, r.status || ',', r.ended_reason || ':', r.detail)
                   FROM automation.runs AS r
                  WHERE r.status <> 'completed' AND r.automation LIKE 'h-%' AND r.id NOT IN (SELECT run FROM holds.told) ORDER BY r.id;
    INSERT INTO holds.told SELECT r.id FROM automation.runs AS r WHERE r.automation LIKE 'h-%' AND r.id NOT IN (SELECT run FROM holds.told);
    RETURN QUERY SELECT format('%s %s held for %s', w.automation, w.step, w.key) FROM automation.waiting AS w WHERE w.kind = 'hold_for' ORDER BY w.run_id;
END $$;
UPDATE door SET state = 'closed';
UPDATE door SET state = 'open' WHERE id = 1;
SELECT holds.now();
UPDATE door SET state = 'closed';
CALL time_is_up();
SELECT automation.run_timers() AS due;
SELECT holds.now();
-- also if a batch is under way that began before
UPDATE door SET state = 'open' WHERE id = 1;
SELECT holds.now();
INSERT INTO house VALUES (2), (3);
SELECT automation.route(1) AS routed;
UPDATE door SET state = 'closed';
CALL time_is_up();
SELECT automation.route(1) AS routed;
SELECT automation.route(1) AS routed;
SELECT reason FROM automation.dispatches;
SELECT holds.now();
-- what happens after it does not
UPDATE door SET state = 'open' WHERE id = 1;
SELECT holds.now();
CALL time_is_up();
UPDATE door SET state = 'closed';
SELECT holds.now();

-- it can be cancelled by its number, once, by whoever may
UPDATE door SET state = 'open' WHERE id = 1;
SELECT holds.now();
SELECT run_id FROM automation.waiting WHERE automation = 'h-owner' \gset
SELECT FROM automation.grant_usage('holder', 'operator');
\set VERBOSITY sqlstate
SET ROLE holder;
SELECT automation.cancel_run(:run_id);
RESET ROLE;
\set VERBOSITY default
SELECT automation.cancel_run(:run_id), automation.cancel_run(:run_id) AS again;
SELECT holds.now();
SELECT FROM automation.revoke_usage('holder');

-- counted
SELECT automation, held, entered, completed, skipped, failed, cancelled FROM automation.stat_automations WHERE automation LIKE 'h-%' ORDER BY 1;
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'h-%';
SELECT count(*) AS held FROM automation_internal.dwell;
SELECT count(*) AS timers FROM automation_internal.timer WHERE reason = 'h';

-- in a queue by a key that what breaks it off does not have
SELECT name FROM automation.define('h-queue', mode => 'queued', key => 'new.state', trigger => automation.on_created('h_door', hold_for => '5 minutes', id => 'open'), steps => opened('queued'));
SELECT at(2000);
BEGIN;
INSERT INTO door VALUES (91, 'a', 1), (92, 'a', 1);
DELETE FROM door WHERE id = 91;
COMMIT;
SELECT at(2001);
SELECT at(2010);
SELECT automation.drop_automation('h-queue');

-- what is refused
SELECT path, message, hint FROM automation.validate('{"name": "h-bad", "steps": [{"do": "sql", "sql": "SELECT 1"}], "trigger": {"on": "call", "hold_for": "5 minutes"}}');
SELECT path, message FROM automation.validate('{"name": "h-bad", "steps": [{"do": "sql", "sql": "SELECT 1"}], "trigger": {"on": "updated", "kind": "h_door", "hold_for": "soon"}}');

SELECT automation.unwatch_table('door'), automation.unwatch_table('sensor'), automation.unwatch_table('house');
SET client_min_messages = warning;
DROP SCHEMA holds CASCADE;
DROP ROLE holder;
