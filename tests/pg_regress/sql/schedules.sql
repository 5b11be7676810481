-- Triggers by the clock (G8, D16, R001-27, R001-58): ticks, daylight saving, what was missed, what overlaps, and how a (nothing is a duplicate, R001-60).
-- schedule follows its definition. Everything goes by set_clock() and drain(), in transactions that are rolled back.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv dir PG_ABS_SRCDIR
\set show :dir '/check/show.sql'
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
CREATE SCHEMA sched;
SET search_path = sched, public;
\i :show
CREATE TABLE effect (seq serial, what text);
CREATE FUNCTION said() RETURNS automation.step LANGUAGE sql AS
$$ SELECT automation.sql('INSERT INTO sched.effect (what) VALUES ({{ payload.scheduled_at }} || CASE WHEN {{ payload.made_up }} THEN '' made up'' ELSE '''' END || CASE WHEN {{ payload.missed }} > 0 THEN '' missed '' || {{ payload.missed }} ELSE '''' END)') $$;
-- sets the clock, lets everything happen, and says which ticks ran
CREATE FUNCTION at(moment timestamptz) RETURNS text LANGUAGE plpgsql AS
$$ DECLARE told text; BEGIN
    PERFORM automation.set_clock(moment);
    PERFORM automation.drain();
    SELECT string_agg(what, ', ' ORDER BY seq) INTO told FROM sched.effect;
    DELETE FROM sched.effect;
    RETURN coalesce(told, '-');
END $$;
CREATE FUNCTION next_tick() RETURNS SETOF text LANGUAGE sql AS
$$ SELECT concat_ws(' ', automation, due_at, due_in, reason) FROM automation.timers WHERE reason LIKE 'tick%' ORDER BY due_at, automation $$;
CREATE FUNCTION ticks() RETURNS SETOF text LANGUAGE sql AS
$$ SELECT concat_ws(' ', trigger, tick, status, CASE WHEN made_up THEN 'made up' END, reason, CASE WHEN run_id IS NOT NULL THEN 'run' END) FROM automation.ticks ORDER BY tick $$;

-- never early, once per tick, and seen by the run as what it is (R000-30, R001-27)
BEGIN;
SELECT automation.set_clock('2030-01-01 08:59:30+00');
SELECT name, version, status FROM automation.define('s-nine', trigger => automation.on_cron('0 9 * * *', id => 'morning'), steps => ARRAY[
    automation.sql($$ INSERT INTO effect (what) VALUES (concat_ws(' ', {{ event.topic }}, {{ event.op }}, {{ event.actor }}, {{ event.payload }}::jsonb, {{ trigger.id }}, {{ trigger.payload.scheduled_at }}, {{ run.trigger }}, {{ new }})) $$)]);
SELECT next_tick();
SELECT at('2030-01-01 08:59:59.999999+00');
SELECT at('2030-01-01 09:00+00');
SELECT at('2030-01-01 09:00+00');
SELECT at('2030-01-01 09:00:01+00');
SELECT next_tick();
SELECT ticks();
SELECT r.status, r.trigger, e.topic, e.op, e.actor, e.depth, e.payload, e.next FROM automation.runs AS r JOIN automation.events AS e ON e.id = r.event_id WHERE r.automation = 's-nine';
-- a clock that is set back repeats nothing, also if the schedule is set going anew
SELECT at('2030-01-01 08:00+00'), at('2030-01-01 09:00+00');
SELECT automation.set_clock('2030-01-01 08:00+00');
SELECT ok FROM automation.pause('s-nine');
SELECT ok FROM automation.resume('s-nine');
SELECT next_tick();
SELECT at('2030-01-01 09:00+00');
SELECT at('2030-01-02 09:00+00') <> '-';
-- by hand it starts too, and that is no tick
SELECT automation.start_run('s-nine', '{"a": 1}') > 0, automation.drain();
SELECT what FROM effect;
SELECT count(*) FROM automation.ticks;
ROLLBACK;

-- daylight saving in New York: forward at 02:00 on 10 March 2030, back at 02:00 on 3 November (R001-58)
BEGIN;
SELECT automation.set_clock('2030-03-09 00:00-05');
SELECT name FROM automation.define('s-dst', triggers => ARRAY[automation.on_cron('30 2 * * *', timezone => 'America/New_York', id => 'half past two'), automation.on_cron('0 9 * * *', timezone => 'america/new_york', id => 'nine')], steps => ARRAY[
    automation.sql($$ INSERT INTO effect (what) VALUES (to_char(({{ payload.scheduled_at }}::timestamptz) AT TIME ZONE 'America/New_York', 'DD HH24:MI') || ' ' || {{ payload.timezone }}) $$)]);
SELECT next_tick();
SELECT at('2030-03-09 12:00-05');
-- the skipped half past two is made up for when the clocks have gone forward, at 03:00 daylight time
SELECT at('2030-03-10 06:59:59.999999+00');
SELECT at('2030-03-10 07:00+00');
SELECT at('2030-03-10 06:30+00'), at('2030-03-10 08:00+00');
SELECT at('2030-03-10 13:00+00'), at('2030-03-11 06:30+00');
SELECT trigger, array_agg(tick AT TIME ZONE 'America/New_York' ORDER BY tick) FROM automation.ticks GROUP BY trigger ORDER BY trigger;
ROLLBACK;
BEGIN;
SELECT automation.set_clock('2030-11-02 23:00-04');
SELECT name FROM automation.define('s-back', triggers => ARRAY[automation.on_cron('30 1 * * *', timezone => 'America/New_York', id => 'once'), automation.on_cron('45 * * * *', timezone => 'America/New_York', id => 'hourly')], steps => ARRAY[said()]);
-- half past one comes twice and fires the first time; every real hour has its quarter to
SELECT at('2030-11-03 05:29+00'), at('2030-11-03 05:30+00'), at('2030-11-03 05:45+00'), at('2030-11-03 06:30+00'), at('2030-11-03 06:45+00');
SELECT at('2030-11-04 06:30+00');
SELECT trigger, status, array_agg(tick ORDER BY tick) FROM automation.ticks WHERE trigger = 'once' OR tick < '2030-11-03 08:00+00' GROUP BY trigger, status ORDER BY trigger, status;
ROLLBACK;

-- what was missed: the last is made up for, none, or the last so many
BEGIN;
SELECT automation.set_clock('2030-01-01 00:00+00');
SELECT name FROM automation.define('s-once', trigger => automation.on_cron('0 * * * *', id => 'once'), steps => ARRAY[said()]);
SELECT at('2030-01-01 05:30+00');
SELECT ticks();
SELECT at('2030-01-01 06:00:10+00');
ROLLBACK;
BEGIN;
SELECT automation.set_clock('2030-01-01 00:00+00');
SELECT name FROM automation.define('s-skip', trigger => automation.on_cron('0 * * * *', missed => 'skip', id => 'skip'), steps => ARRAY[said()]);
SELECT at('2030-01-01 03:30+00');
SELECT at('2030-01-01 05:00:01+00');
SELECT at('2030-01-01 06:00:10+00'), at('2030-01-01 07:00:10.000001+00');
SELECT ticks();
ROLLBACK;
BEGIN;
SELECT automation.set_clock('2030-01-01 00:00+00');
SELECT name FROM automation.define('s-all', trigger => automation.on_cron('0 * * * *', missed => 'all 3', id => 'all'), steps => ARRAY[said()]);
SELECT at('2030-01-01 05:30+00');
SELECT ticks();
SELECT at('2030-01-01 08:00+00');
-- a thousand years later: a hundred are recorded, and it does not take for ever
SELECT at('3030-01-01 00:00+00');
SELECT status, count(*), min(tick), max(tick) FROM automation.ticks WHERE tick > '2030-01-02' GROUP BY status ORDER BY status;
ROLLBACK;

-- intervals count from when the automation was made active, and go by no calendar
BEGIN;
SELECT automation.set_clock('2030-03-30 23:00:07+00');
SELECT name FROM automation.define('s-every', trigger => automation.on_interval('90 minutes', missed => 'all', overlap => 'allow'), steps => ARRAY[said()]);
SELECT next_tick();
SELECT at('2030-03-31 00:30:06+00'), at('2030-03-31 00:30:07+00');
SELECT at('2030-03-31 05:00+00');
SELECT automation.document('s-every') -> 'triggers';
SELECT payload -> 'timezone' FROM automation.events WHERE topic = 'automation.tick.s-every' LIMIT 1;
ROLLBACK;

-- overlap: a run of an earlier tick is under way. skip: the tick is recorded, counted, and starts nothing
CREATE FUNCTION slow(overlap text, missed text DEFAULT 'once') RETURNS text LANGUAGE sql AS
$$ SELECT name FROM automation.define('s-slow', trigger => automation.on_cron('0 * * * *', overlap => slow.overlap, missed => slow.missed, id => 'hourly'), steps => ARRAY[said(), automation.delay('150 minutes', id => 'd')]) $$;
CREATE FUNCTION runs() RETURNS SETOF text LANGUAGE sql AS
$$ SELECT concat_ws(' ', t.tick, t.status, r.status, r.started_at::time) FROM automation.ticks AS t LEFT JOIN automation.runs AS r ON r.id = t.run_id ORDER BY t.tick $$;
BEGIN;
SELECT automation.set_clock('2030-01-01 00:00+00');
SELECT slow('skip');
SELECT at('2030-01-01 01:00+00'), at('2030-01-01 02:00+00'), at('2030-01-01 03:00+00'), at('2030-01-01 03:30+00'), at('2030-01-01 04:00+00');
SELECT ticks();
SELECT matched, refused, entered FROM automation.stat_automations WHERE automation = 's-slow';
-- cancelled, it is under way no more
SELECT automation.cancel_run($$ run.automation = 's-slow' $$);
SELECT at('2030-01-01 05:00+00');
-- several that are made up for go one after the other, but not past a run that is under way
SELECT slow('skip', missed => 'all 3');
SELECT at('2030-01-01 07:40+00');
SELECT ticks() FROM (SELECT 1) AS x OFFSET 5;
SELECT at('2030-01-01 10:20+00');
SELECT runs() FROM (SELECT 1) AS x OFFSET 7;
SELECT at('2030-01-01 12:50+00');
SELECT runs() FROM (SELECT 1) AS x OFFSET 7;
ROLLBACK;
-- queue: each starts when the one before it has ended, in order
BEGIN;
SELECT automation.set_clock('2030-01-01 00:00+00');
SELECT slow('queue');
SELECT at('2030-01-01 01:00+00'), at('2030-01-01 02:00+00'), at('2030-01-01 03:00+00');
SELECT ticks();
SELECT at('2030-01-01 03:30+00');
SELECT at('2030-01-01 04:00+00'), at('2030-01-01 05:00+00'), at('2030-01-01 06:00+00');
SELECT runs();
-- cancelled, too, it makes room
SELECT automation.cancel_run($$ run.automation = 's-slow' $$), at('2030-01-01 06:00:01+00');
-- what waits when the automation is paused will not start
SELECT ok FROM automation.pause('s-slow');
SELECT ticks() FROM (SELECT 1) AS x OFFSET 3;
SELECT automation.drain(), count(*) FROM automation.runs WHERE automation = 's-slow' AND status IN ('pending', 'waiting');
ROLLBACK;
-- allow: they do not care about each other; and what waits under another rule goes on at once
BEGIN;
SELECT automation.set_clock('2030-01-01 00:00+00');
SELECT slow('queue');
SELECT at('2030-01-01 01:00+00'), at('2030-01-01 02:00+00');
SELECT slow('allow');
SELECT next_tick();
SELECT at('2030-01-01 03:00+00'), at('2030-01-01 04:00+00');
SELECT runs();
ROLLBACK;

-- pause and resume: what would have fired meanwhile does not count, not even once
BEGIN;
SELECT automation.set_clock('2030-01-01 00:00+00');
SELECT name FROM automation.define('s-pause', trigger => automation.on_cron('0 * * * *', missed => 'all'), steps => ARRAY[said()]);
SELECT at('2030-01-01 01:00+00');
SELECT ok FROM automation.pause('s-pause');
SELECT next_tick();
SELECT at('2030-01-01 03:00+00');
SELECT ok FROM automation.resume('s-pause');
SELECT next_tick();
SELECT at('2030-01-01 03:59+00'), at('2030-01-01 04:00+00');
-- the same through the definition, and as a draft
SELECT ok FROM automation.pause('s-pause');
SELECT ok FROM automation.revert_to_draft('s-pause');
SELECT at('2030-01-01 06:00+00');
SELECT ok FROM automation.activate('s-pause');
SELECT at('2030-01-01 06:59+00'), at('2030-01-01 07:00+00');
SELECT ok FROM automation.pause('s-pause');
SELECT at('2030-01-01 09:30+00');
SELECT version, status FROM automation.define('s-pause', trigger => automation.on_cron('0 * * * *', missed => 'all'), steps => ARRAY[said()], status => 'active');
SELECT at('2030-01-01 09:59+00'), at('2030-01-01 10:00+00');
SELECT ticks();
-- paused by somebody who knows nothing of schedules: the next tick finds out, and then it rests
UPDATE automation_internal.automation SET status = 'paused' WHERE name = 's-pause';
INSERT INTO automation_internal.definition_change DEFAULT VALUES;
SELECT next_tick();
SELECT at('2030-01-01 11:00+00'), at('2030-01-01 12:00+00');
SELECT count(*) FROM automation_internal.schedule WHERE next_tick IS NOT NULL;
SELECT ok FROM automation.resume('s-pause');
SELECT at('2030-01-01 12:59+00'), at('2030-01-01 13:00+00');
ROLLBACK;

-- defined anew: with the same times it goes on where it was, with others it counts from now
BEGIN;
SELECT automation.set_clock('2030-01-01 00:00+00');
SELECT name FROM automation.define('s-again', triggers => ARRAY[automation.on_cron('0 * * * *', missed => 'all', id => 'hour'), automation.on_interval('1 hour', id => 'each', missed => 'all', overlap => 'allow')], steps => ARRAY[said()]);
SELECT automation.set_clock('2030-01-01 02:30+00');
SELECT version, notices FROM automation.define('s-again', triggers => ARRAY[automation.on_cron('0 * * * *', missed => 'all', id => 'hour'), automation.on_interval('1 hour', id => 'each', missed => 'all', overlap => 'allow')], steps => ARRAY[said()]);
SELECT version FROM automation.define('s-again', triggers => ARRAY[automation.on_cron(' 0  * * * *', missed => 'all', overlap => 'allow', id => 'hour'), automation.on_interval('60 minutes', id => 'each', missed => 'all', overlap => 'allow')], steps => ARRAY[said(), automation.set('{"a": 1}')]);
SELECT next_tick();
SELECT at('2030-01-01 02:30+00');
SELECT version FROM automation.define('s-again', triggers => ARRAY[automation.on_cron('15 * * * *', missed => 'all', id => 'hour'), automation.on_interval('1 hour', id => 'another')], steps => ARRAY[said()]);
SELECT next_tick();
SELECT at('2030-01-01 03:15+00'), at('2030-01-01 03:30+00');
SELECT ticks();
-- dropped: nothing more; the record of what was stays
SELECT automation.drop_automation('s-again');
SELECT next_tick();
SELECT at('2030-01-01 09:00+00');
SELECT count(*) > 0 FROM automation.ticks;
-- another of the same name is another
SELECT name FROM automation.define('s-again', trigger => automation.on_cron('15 * * * *', id => 'hour'), steps => ARRAY[said()]);
SELECT at('2030-01-01 09:15+00');
-- a trigger that is switched off does not tick
SELECT status FROM automation.define('{"name": "s-off", "triggers": [{"on": "cron", "expr": "* * * * *", "enabled": false}, {"on": "call"}], "steps": [{"do": "sql", "sql": "SELECT 1"}]}');
SELECT next_tick();
ROLLBACK;

-- filters and conditions: weekdays only, and a table that says stop
BEGIN;
SELECT automation.set_clock('2030-01-04 12:00+00');
CREATE TABLE switch (id int PRIMARY KEY, lit boolean);
INSERT INTO switch VALUES (1, true);
SELECT automation.watch_table('switch', kind => 's_switch');
SELECT name FROM automation.define('s-filter', trigger => automation.on_cron('0 9 * * *', filter => $$ not (payload.scheduled_at like '%-05T%') $$), condition => $$ state.s_switch['1'].lit $$, steps => ARRAY[said()]);
SELECT at('2030-01-05 09:00+00'), at('2030-01-06 09:00+00');
UPDATE switch SET lit = false;
SELECT at('2030-01-07 09:00+00');
SELECT runs();
SELECT ticks();
SELECT matched, filtered, skipped FROM automation.stat_automations WHERE automation = 's-filter';
ROLLBACK;

-- a tick does what it does in the transaction that rolls it back
BEGIN;
SELECT automation.set_clock('2030-01-01 00:00+00');
SELECT name FROM automation.define('s-save', trigger => automation.on_cron('0 * * * *'), steps => ARRAY[said()]);
SAVEPOINT s;
SELECT at('2030-01-01 01:00+00');
ROLLBACK TO s;
SELECT count(*) FROM automation.ticks;
SELECT at('2030-01-01 01:00+00');
-- run_timers() takes a tick, dispatch() runs it
SELECT automation.set_clock('2030-01-01 02:00+00'), automation.run_timers(), automation.run_timers(), automation.dispatch();
-- one that failed is tried again as what it was
SELECT name FROM automation.define('s-fails', trigger => automation.on_cron('30 * * * *', id => 'half'), steps => ARRAY[automation.sql($$ SELECT 1 / (SELECT count(*)::int FROM effect WHERE what = 'ok') $$), said()]);
SELECT at('2030-01-01 02:30+00');
SELECT id AS failed FROM automation.runs WHERE automation = 's-fails' \gset
SELECT told(:failed);
INSERT INTO effect (what) VALUES ('ok');
SELECT automation.retry_run(:failed) AS again \gset
SELECT at('2030-01-01 02:31+00');
SELECT status, trigger FROM automation.runs WHERE id = :again;
SELECT count(*) FROM automation.ticks WHERE automation = 's-fails';
ROLLBACK;

-- a schedule that cannot be dealt with is put off and said so; the others are not held up
BEGIN;
SELECT automation.set_clock('2030-01-01 00:00+00');
SELECT name FROM automation.define('s-bad', trigger => automation.on_cron('0 * * * *'), steps => ARRAY[said()]);
SELECT name FROM automation.define('s-good', trigger => automation.on_cron('0 * * * *'), steps => ARRAY[said()]);
SELECT s.id AS bad FROM automation_internal.schedule AS s JOIN automation_internal.automation AS a ON a.id = s.automation_id WHERE a.name = 's-bad' \gset
ALTER TABLE automation_internal.tick ADD CONSTRAINT stop CHECK (schedule_id <> :bad);
SELECT at('2030-01-01 01:00+00');
SELECT next_tick();
SELECT level, code, automation, message, regexp_replace(detail, '".*', '') FROM automation.log WHERE code = 'schedule_failed';
SELECT count(*) FROM automation.runs WHERE automation = 's-bad';
ALTER TABLE automation_internal.tick DROP CONSTRAINT stop;
SELECT at('2030-01-01 01:01+00');
ROLLBACK;

-- ticks are for their owner, and for those who have his rights; another's clock moves nobody's schedule but his own
CREATE ROLE regress_s_owner LOGIN;
CREATE ROLE regress_s_other LOGIN;
SELECT automation.grant_usage('regress_s_owner', 'author'), automation.grant_usage('regress_s_other', 'author');
GRANT USAGE ON SCHEMA sched TO regress_s_owner, regress_s_other;
BEGIN;
SELECT automation.set_clock('2030-01-01 00:00+00');
SET LOCAL ROLE regress_s_owner;
SELECT name FROM automation.define('s-own', trigger => automation.on_cron('0 * * * *'), steps => ARRAY[automation.publish('s.ran')]);
SELECT next_tick();
SET LOCAL ROLE regress_s_other;
SELECT next_tick();
SELECT automation.set_clock('2030-01-01 01:00+00'), automation.drain();
SELECT count(*) FROM automation.ticks;
SET LOCAL ROLE regress_s_owner;
SELECT count(*) FROM automation.ticks;
SELECT automation.drain();
SELECT ticks();
SELECT topic, actor, role FROM automation.events WHERE topic LIKE 'automation.tick.%';
SET LOCAL ROLE regress_s_other;
SELECT (SELECT count(*) FROM automation.ticks) AS ticks, (SELECT count(*) FROM automation.events WHERE topic LIKE 'automation.tick.%') AS events, (SELECT count(*) FROM automation.timers) AS timers;
ROLLBACK;
SELECT automation.revoke_usage('regress_s_owner'), automation.revoke_usage('regress_s_other');

-- old ticks are forgotten with the history, and with them the schedules of what was dropped; what waits is not
BEGIN;
SELECT automation.set_clock('2000-01-01 00:00+00');
SELECT slow('queue');
SELECT at('2000-01-01 01:00+00'), at('2000-01-01 02:00+00');
SELECT name FROM automation.define('s-gone', trigger => automation.on_cron('0 * * * *'), steps => ARRAY[said()]);
SELECT at('2000-01-01 03:00+00'), automation.drop_automation('s-gone');
SELECT automation.set_clock(NULL) IS NULL;
SELECT automation.sweep() >= 0;
SELECT ticks();
SELECT count(*) FROM automation_internal.schedule;
ROLLBACK;

-- what is refused, with what to write instead
CREATE FUNCTION refused(trigger jsonb) RETURNS SETOF text LANGUAGE sql AS
$$ SELECT concat_ws(' | ', path, col, sqlstate, message, hint) FROM automation.validate(jsonb_build_object('name', 's-wrong', 'steps', '[{"do": "sql", "sql": "SELECT 1"}]'::jsonb, 'trigger', trigger)) $$;
SELECT refused(automation.on_cron('0 9 * * *', timezone => 'Amerika/New_York'));
SELECT refused(automation.on_cron('0 9 * * *', timezone => ''));
SELECT refused(automation.on_cron('0 0 30 2 *'));
SELECT refused(automation.on_cron('0 25 * * *'));
SELECT refused(automation.on_cron('0 9 * *'));
SELECT refused(automation.on_cron('@dayly'));
SELECT refused(automation.on_cron('0 9 * * *', missed => 'onec'));
SELECT refused(automation.on_cron('0 9 * * *', missed => 'all 0'));
SELECT refused(automation.on_cron('0 9 * * *', missed => 'all 1001'));
SELECT refused(automation.on_cron('0 9 * * *', missed => 'all of them'));
SELECT refused(automation.on_cron('0 9 * * *', overlap => 'quue'));
SELECT refused(automation.on_cron(NULL));
SELECT refused(automation.on_interval('0'));
SELECT refused(automation.on_interval('-5 minutes'));
SELECT refused(automation.on_interval('1 month'));
SELECT refused(automation.on_interval('0.5 seconds'));
SELECT refused(automation.on_interval(NULL));
SELECT refused(automation.on_interval('1 hour', missed => 'never'));
SELECT refused('{"on": "interval", "every": "1 hour", "timezone": "UTC"}');
SELECT tried($$ SELECT automation.define('s-wrong', trigger => automation.on_cron('0 9 * * *', timezone => 'Mars/Olympus'), steps => ARRAY[sched.said()]) $$);

SET client_min_messages = warning;
DROP SCHEMA sched CASCADE;
DROP ROLE regress_s_owner, regress_s_other;
