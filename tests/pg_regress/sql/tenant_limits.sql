-- Limits of an automation that is for all tenants count, and stop, tenant by tenant (R002-12 to R002-18, R003-9): one noisy tenant
-- stops only itself.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv srcdir PG_ABS_SRCDIR
\set show :srcdir '/check/show.sql'
CREATE SCHEMA tl;
SET search_path = tl, public;
\i :show
CREATE TABLE effect (what text);
CREATE FUNCTION happened() RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM automation.drain();
    RETURN QUERY SELECT what || ' ' || count(*) FROM tl.effect GROUP BY what ORDER BY what;
    DELETE FROM tl.effect;
END $$;
CREATE FUNCTION says() RETURNS automation.step LANGUAGE sql AS
$$ SELECT automation.sql('INSERT INTO tl.effect (what) VALUES ({{ run.automation + '' for '' + (event.tenant | default(''nobody'')) }})') $$;
-- events, in this order, of these tenants
CREATE FUNCTION come(topic text, VARIADIC tenants text[]) RETURNS bigint LANGUAGE sql AS
$$ SELECT count(automation.emit(topic, tenant => nullif(t, ''))) FROM unnest(tenants) AS t $$;

-- max_executions: the fourth execution of a tenant is too many, for that tenant
SELECT name FROM automation.define('tl-max', trigger => automation.on_event('tl.go'), max_executions => '3 per 1 minute', steps => ARRAY[says()]);
SELECT come('tl.go', 'noisy', 'noisy', 'noisy', 'noisy', 'noisy', 'quiet', 'quiet', '', '');
SELECT happened();
SELECT status, count(*) FROM automation.runs WHERE automation = 'tl-max' AND tenant = 'noisy' GROUP BY status ORDER BY status;
SELECT status FROM automation.automations WHERE name = 'tl-max';
SELECT automation, tenant, disabled_by, reason, details - 'disabled_at' FROM automation.paused_tenants;
SELECT item, status, regexp_replace(detail, 'since .*;', 'since ...;') FROM automation.status() WHERE item LIKE 'automation tl%';
SELECT code, message, detail FROM automation.log WHERE automation = 'tl-max';
SELECT action, role, tenant FROM automation.audit_log WHERE automation = 'tl-max' AND action <> 'automation.defined';
SELECT topic, entity_id, tenant, payload FROM automation.events WHERE topic = 'automation.paused' AND entity_id = 'tl-max';
-- its further events start nothing, and are counted; the others' go on, each within its own limit
SELECT come('tl.go', 'noisy', 'noisy', 'quiet', '');
SELECT happened();
SELECT reason, count FROM automation.stat_gates WHERE automation = 'tl-max';
-- nor is it started by hand for that tenant
SELECT tried($$ SELECT automation.start_run('tl-max', tenant => 'noisy') $$);
SELECT tried($$ SELECT automation.start_with_event('tl-max', '{"tenant": "noisy"}') $$);
SELECT tried($$ SELECT automation.retry_run((SELECT max(id) FROM automation.runs WHERE automation = 'tl-max' AND tenant = 'noisy' AND status = 'cancelled')) $$);
SELECT automation.start_run('tl-max', tenant => 'other') > 0;
SELECT happened();
-- what belongs to no tenant counts together, and pauses all
SELECT come('tl.go', '');
SELECT happened();
SELECT status, disable_details ->> 'reason', disable_details ? 'tenant' FROM automation.automations WHERE name = 'tl-max';
SELECT tried($$ SELECT automation.resume('tl-max', tenant => 'noisy') $$);
-- resume(name) resumes all, resume(name, tenant => ...) one
SELECT ok, applied FROM automation.resume('tl-max');
SELECT count(*) FROM automation.paused_tenants;
SELECT come('tl.go', 'noisy', 'noisy', 'noisy', 'noisy', 'loud', 'loud', 'loud', 'loud');
SELECT happened();
SELECT tenant FROM automation.paused_tenants;
SELECT ok, applied FROM automation.resume('tl-max', tenant => 'loud');
SELECT ok, applied FROM automation.resume('tl-max', tenant => 'loud');
SELECT come('tl.go', 'noisy', 'loud', 'loud', 'loud');
SELECT happened();
SELECT tenant FROM automation.paused_tenants;
SELECT ok, applied FROM automation.resume('tl-max');
SELECT ok, applied FROM automation.resume('tl-max');
SELECT tenant FROM automation.paused_tenants;
SELECT action, role = session_user::text, tenant, details -> 'no_op' FROM automation.audit_log WHERE automation = 'tl-max' AND action = 'automation.resumed' ORDER BY at;
-- a person can pause one tenant, and only a shared automation
SELECT ok, applied FROM automation.pause('tl-max', tenant => 'quiet');
SELECT ok, applied FROM automation.pause('tl-max', tenant => 'quiet');
SELECT automation, tenant, disabled_by, reason FROM automation.paused_tenants;
SELECT come('tl.go', 'quiet', 'third');
SELECT happened();
SELECT tried($$ SELECT automation.revert_to_draft('tl-max', tenant => 'quiet') $$);
-- a new version stays paused for the tenant; a drop forgets it
SELECT version FROM automation.define('tl-max', trigger => automation.on_event('tl.go'), max_executions => '4 per 1 minute', steps => ARRAY[says()]);
SELECT come('tl.go', 'quiet');
SELECT happened();
SELECT automation.drop_automation('tl-max');
SELECT count(*) FROM automation_internal.tenant_pause;

-- the tenant's own automation is paused as a whole
SELECT name FROM automation.define('tl-own', trigger => automation.on_event('tl.go'), tenant => 'noisy', max_executions => '1 per 1 minute', steps => ARRAY[says()]);
SELECT come('tl.go', 'noisy', 'noisy');
SELECT happened();
SELECT status, disable_details ->> 'reason' FROM automation.automations WHERE name = 'tl-own';
SELECT count(*) FROM automation.paused_tenants;
SELECT automation.drop_automation('tl-own');

-- the breaker: two failures in a row of one tenant's runs; another's success does not close it, nor its failures open it
SELECT name FROM automation.define('tl-fail', trigger => automation.on_event('tl.go'), breaker => 2, steps => ARRAY[
    automation.sql($$ SELECT 1 / CASE WHEN {{ event.tenant }} IN ('bad', 'once') THEN 0 ELSE 1 END $$), says()]);
SELECT come('tl.go', 'bad');
SELECT happened();
SELECT come('tl.go', 'good', 'once');
SELECT happened();
SELECT come('tl.go', 'bad', 'good');
SELECT happened();
SELECT automation, tenant, reason, details ->> 'failures' FROM automation.paused_tenants;
SELECT message FROM automation.log WHERE automation = 'tl-fail';
SELECT status FROM automation.automations WHERE name = 'tl-fail';
SELECT come('tl.go', 'bad', 'good');
SELECT happened();
SELECT ok, applied FROM automation.resume('tl-fail', tenant => 'bad');
SELECT come('tl.go', 'bad', 'good');
SELECT happened();
SELECT count(*) FROM automation.paused_tenants;
SELECT automation.drop_automation('tl-fail');

-- runs under way: cancelled (drain), to their end (finish), later (freeze)
SELECT d.name FROM unnest('{drain,finish,freeze}'::text[]) AS p, automation.define('tl-' || p, trigger => automation.on_event('tl.' || p), on_pause => p, steps => ARRAY[automation.wait_signal('tl-on'), says()]) AS d;
SELECT come('tl.' || p, 'noisy', 'quiet') FROM unnest('{drain,finish,freeze}'::text[]) AS p;
SELECT happened();
SELECT (automation.pause('tl-' || p, tenant => 'noisy')).ok FROM unnest('{drain,finish,freeze}'::text[]) AS p;
SELECT count(automation.signal('tl-on', tenant => t)) FROM unnest('{noisy,quiet}'::text[]) AS t, generate_series(1, 3);
SELECT happened();
SELECT automation, tenant, status, ended_reason FROM automation.runs WHERE automation IN ('tl-drain', 'tl-finish', 'tl-freeze') AND tenant = 'noisy' ORDER BY automation;
SELECT ok, applied FROM automation.resume('tl-freeze', tenant => 'noisy');
SELECT happened();
-- a trigger that is held for a while is not held any more
SELECT automation.set_clock('2030-01-01 12:00:00+00');
CREATE TABLE door (id int PRIMARY KEY, org text, state text);
SELECT automation.watch_table('door', kind => 'tl_door', tenant_column => 'org');
SELECT name FROM automation.define('tl-hold', trigger => automation.on_state('tl_door', 'state', to_value => 'open', hold_for => '5 minutes'), steps => ARRAY[says()]);
INSERT INTO door VALUES (1, 'noisy', 'shut'), (2, 'quiet', 'shut');
UPDATE door SET state = 'open';
SELECT happened();
SELECT ok FROM automation.pause('tl-hold', tenant => 'noisy');
SELECT automation.advance('6 minutes');
SELECT happened();
SELECT tenant, status, ended_reason FROM automation.runs WHERE automation = 'tl-hold' ORDER BY tenant;

-- other roles see nothing of it
-- a chain that feeds itself to the depth limit stops the tenant whose events it is made of
SELECT name FROM automation.define('tl-self', trigger => automation.on_event('tl.round'),
    steps => ARRAY[says(), automation.publish('tl.round')]);
SELECT come('tl.round', 'noisy');
SELECT happened();
SELECT tenant, reason, details ->> 'check' FROM automation.paused_tenants WHERE automation = 'tl-self';
SELECT status FROM automation.automations WHERE name = 'tl-self';
SELECT message FROM automation.log WHERE automation = 'tl-self' AND code = 'hot_flow';
SELECT come('tl.round', 'noisy');
SELECT count(*) FROM happened();
SELECT automation.drop_automation('tl-self');
-- a row whose tenant has a name that is too long to count starts nothing, and stops nothing else
CREATE TABLE long (id int PRIMARY KEY, org text);
SELECT automation.watch_table('long', kind => 'tl_long', tenant_column => 'org');
SELECT name FROM automation.define('tl-long', trigger => automation.on_created('tl_long'), max_executions => '3 per 1 minute', steps => ARRAY[says()]);
INSERT INTO long SELECT 1, string_agg(md5(n::text), '') FROM generate_series(1, 100) AS n;
INSERT INTO long VALUES (2, 'quiet');
SELECT happened();
SELECT message, detail FROM automation.log WHERE code = 'reserved_tenant' AND message LIKE '%tl_long%';
SELECT tried($$ SELECT automation.pause('tl-long', tenant => repeat('x', 201)) $$);
SELECT tried($$ SELECT automation.define('tl-long', tenant => repeat('x', 201), trigger => automation.on_created('tl_long'), steps => ARRAY[says()]) $$);
-- a table that has lost its tenant column shows no row to a run of a tenant
SELECT name FROM automation.define('tl-peek', tenant => 'a', trigger => automation.on_event('tl.peek'),
    steps => ARRAY[automation.sql('INSERT INTO tl.effect VALUES ({{ ''sees '' + (state.tl_long[2].id | default(''nothing'')) }})')]);
ALTER TABLE long RENAME org TO organisation;
SELECT come('tl.peek', 'a');
SELECT happened();
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name IN ('tl-long', 'tl-peek');
SELECT automation.unwatch_table('long');
CREATE ROLE regress_tl_bob LOGIN;
SELECT automation.grant_usage('regress_tl_bob', 'admin');
SET ROLE regress_tl_bob;
SELECT count(*) FROM automation.paused_tenants;
SELECT count(*) FROM automation.status() WHERE item LIKE 'automation tl%';
SELECT ok, reason FROM automation.resume('tl-hold', tenant => 'noisy');
RESET ROLE;
SELECT automation.revoke_usage('regress_tl_bob');
DROP ROLE regress_tl_bob;
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'tl-%';
SELECT automation.unwatch_table('door');
SELECT automation.set_clock(NULL);
DELETE FROM automation_internal.signal;
SET client_min_messages = warning;
DROP SCHEMA tl CASCADE;
