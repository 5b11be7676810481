-- Who hears whom: events are for the role that emits them; both sides agree to more, or a role that speaks for both.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only on
CREATE SCHEMA tr;
SET search_path = tr, public;
CREATE ROLE regress_t_ann LOGIN;
CREATE ROLE regress_t_bob LOGIN;
CREATE ROLE regress_t_eve LOGIN;
CREATE ROLE regress_t_view LOGIN;
SELECT automation.grant_usage('regress_t_ann', 'author'), automation.grant_usage('regress_t_bob', 'author'),
            automation.grant_usage('regress_t_eve', 'author'), automation.grant_usage('regress_t_view', 'viewer');
CREATE TABLE effect (seq serial, owner name DEFAULT current_user, what text);
GRANT USAGE ON SCHEMA tr TO regress_t_ann, regress_t_bob, regress_t_eve;
GRANT INSERT ON effect TO regress_t_ann, regress_t_bob, regress_t_eve;
GRANT USAGE ON SEQUENCE effect_seq_seq TO regress_t_ann, regress_t_bob, regress_t_eve;
-- what has happened since the last look
CREATE FUNCTION happened() RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM automation.drain();
    RETURN QUERY DELETE FROM tr.effect RETURNING owner || ': ' || what;
END $$;
-- a statement of a role, with what it answers or how it fails
CREATE FUNCTION says(role name, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    answer text; state text; message text; detail text; hint text;
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', role);
    EXECUTE statement INTO answer;
    RESET ROLE;
    RETURN answer;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN concat_ws(E'\n', state || ' ' || message, 'DETAIL ' || nullif(detail, ''), 'HINT ' || nullif(hint, ''));
END $$;
SELECT name FROM automation.define('tr-ann', trigger => automation.on_event('pay.ok', filter => 'event.kind is null'), run_as => 'regress_t_ann', steps => ARRAY[
    automation.sql($$ INSERT INTO tr.effect (what) VALUES ('pay.ok ' || {{ payload.by }}) $$)]);
SELECT name FROM automation.define('tr-bob', trigger => automation.on_event('#', filter => $$ event.topic like 'ann.%' $$), run_as => 'regress_t_bob', steps => ARRAY[
    automation.sql($$ INSERT INTO tr.effect (what) VALUES ({{ event.topic }} || ' ' || {{ payload.by }}) $$)]);
SELECT name FROM automation.define('tr-eve', trigger => automation.on_event('eve.x'), run_as => 'regress_t_eve', steps => ARRAY[
    automation.sql($$ INSERT INTO tr.effect (what) VALUES ('heard ' || {{ payload.by }}) $$)]);
SELECT name FROM automation.define('tr-super', trigger => automation.on_event('pay.ok'), steps => ARRAY[
    automation.sql($$ INSERT INTO tr.effect (what) VALUES ('superuser heard ' || {{ payload.by }}) $$)]);

-- without any grant: one's own, and what a superuser emits, who could start every run by hand
SELECT says('regress_t_ann', $$ SELECT automation.emit('pay.ok', '{"by": "ann"}') > 0 $$);
SELECT says('regress_t_ann', $$ SELECT automation.emit('ann.salary', '{"by": "ann"}') > 0 $$);
SELECT says('regress_t_bob', $$ SELECT automation.emit('pay.ok', '{"by": "bob"}') > 0 $$);
SELECT happened();
SELECT automation.emit('pay.ok', '{"by": "superuser"}') > 0;
SELECT happened() ORDER BY 1;
-- the view shows the events that a role may hear, but a superuser's to superusers alone
SELECT says(role, $$ SELECT string_agg(payload ->> 'by', ' ' ORDER BY id) FROM automation.events WHERE op = 'emitted' $$)
  FROM unnest('{regress_t_ann,regress_t_bob,regress_t_view}'::name[]) AS role;

-- a grant of one side does not speak for the other: not to be heard
SET ROLE regress_t_eve;
SELECT automation.grant_topic('regress_t_ann', 'pay', 'listen');
SELECT automation.emit('pay.ok', '{"by": "eve"}') > 0;
RESET ROLE;
SELECT happened();
-- nor to read
SET ROLE regress_t_bob;
SELECT automation.grant_topic('regress_t_ann', 'ann', 'emit');
RESET ROLE;
SELECT says('regress_t_ann', $$ SELECT automation.emit('ann.salary', '{"by": "ann"}') > 0 $$);
SELECT happened();
SELECT says('regress_t_bob', $$ SELECT count(*) FROM automation.events WHERE topic = 'ann.salary' $$);
-- a member hears the role, and the role does not hear its member
GRANT regress_t_eve TO regress_t_ann;
SELECT says('regress_t_ann', $$ SELECT automation.emit('eve.x', '{"by": "ann"}') > 0 $$);
SELECT says('regress_t_eve', $$ SELECT automation.emit('pay.ok', '{"by": "eve"}') > 0 $$);
SELECT happened();
REVOKE regress_t_eve FROM regress_t_ann;

-- both sides
SELECT says('regress_t_ann', $$ SELECT automation.grant_topic('regress_t_bob', 'ann', 'listen') $$);
SELECT says('regress_t_ann', $$ SELECT automation.emit('ann.salary', '{"by": "ann, granted"}') > 0 $$);
SELECT says('regress_t_ann', $$ SELECT automation.emit('annex', '{"by": "ann"}') > 0 $$);
SELECT happened();
SELECT says('regress_t_bob', $$ SELECT string_agg(topic, ' ' ORDER BY id) FROM automation.events WHERE topic LIKE 'ann%' $$);
SELECT says('regress_t_view', $$ SELECT count(*) FROM automation.events WHERE topic LIKE 'ann%' $$);
SELECT role, prefix, may, of, settled, granted_by FROM automation.topic_grants;
SELECT says('regress_t_eve', $$ SELECT string_agg(role || ' ' || prefix || ' ' || may || ' of ' || of, ', ') FROM automation.topic_grants $$);
SELECT says('regress_t_ann', $$ SELECT automation.revoke_topic('regress_t_bob', 'ann', 'listen') $$);
SELECT says('regress_t_ann', $$ SELECT automation.emit('ann.salary', '{"by": "ann, revoked"}') > 0 $$);
SELECT happened();

-- a superuser, or a role with the privileges of both, needs one grant only: of one role, or of all
SELECT automation.grant_topic('regress_t_bob', 'pay.', 'emit', of => 'regress_t_ann');
SELECT says('regress_t_bob', $$ SELECT automation.emit('pay.ok', '{"by": "bob"}') > 0 $$);
SELECT happened();
SELECT automation.grant_topic('regress_t_bob', 'pay.#', 'emit');
SELECT says('regress_t_bob', $$ SELECT automation.emit('pay.ok', '{"by": "bob"}') > 0 $$);
SELECT happened() ORDER BY 1;
SELECT automation.revoke_topic('regress_t_bob', 'pay', 'emit'), automation.revoke_topic('regress_t_bob', 'pay', 'emit', of => 'regress_t_ann');
SELECT says('regress_t_bob', $$ SELECT automation.emit('pay.ok', '{"by": "bob"}') > 0 $$);
SELECT happened();
SELECT automation.grant_topic('regress_t_bob', 'ann', 'listen');
SELECT says('regress_t_ann', $$ SELECT automation.emit('ann.salary', '{"by": "ann"}') > 0 $$);
SELECT happened();
SELECT automation.revoke_topic('regress_t_bob', 'ann', 'listen');

-- a step publishes as the run's owner; a function with its owner's rights emits as its owner, not as its caller
SELECT says('regress_t_bob', $$ SELECT name FROM automation.define('tr-publish', trigger => automation.on_event('bob.go'), steps => ARRAY[
    automation.publish('pay.ok', '{"by": "a step of bob"}')]) $$);
GRANT CREATE ON SCHEMA tr TO regress_t_eve, regress_t_ann;
CREATE FUNCTION tr.lure() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $f$ SELECT automation.emit('pay.ok', '{"by": "a lure"}') $f$;
ALTER FUNCTION tr.lure() OWNER TO regress_t_eve;
CREATE FUNCTION tr.pay() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS $f$ SELECT automation.emit('pay.ok', '{"by": "ann''s function"}') $f$;
ALTER FUNCTION tr.pay() OWNER TO regress_t_ann;
SELECT says('regress_t_bob', $$ SELECT automation.emit('bob.go') > 0 $$);
SELECT says('regress_t_ann', $$ SELECT tr.lure() > 0 $$);
SELECT happened();
SELECT says('regress_t_bob', $$ SELECT tr.pay() > 0 $$);
SELECT happened();
SELECT role FROM automation.events WHERE payload ->> 'by' IN ('a lure', 'ann''s function') ORDER BY id;

-- waits
SELECT name FROM automation.define('tr-wait', trigger => automation.on_event('ann.wait'), run_as => 'regress_t_ann', steps => ARRAY[
    automation.wait_for_event('pay.wanted', timeout => '1 hour', id => 'w'),
    automation.sql($$ INSERT INTO tr.effect (what) VALUES ('waited for ' || {{ steps.w.event.payload.by }}) $$)]);
SELECT says('regress_t_ann', $$ SELECT automation.emit('ann.wait') > 0 $$);
SELECT happened();
SELECT says('regress_t_bob', $$ SELECT automation.emit('pay.wanted', '{"by": "bob"}') > 0 $$);
SELECT happened();
SELECT says('regress_t_ann', $$ SELECT automation.emit('pay.wanted', '{"by": "ann"}') > 0 $$);
SELECT happened();

-- a derived topic: whose rule it is decides whom it starts
CREATE TABLE bait (id int PRIMARY KEY, ok boolean);
ALTER TABLE bait OWNER TO regress_t_eve;
GRANT SELECT ON bait TO regress_t_ann;
SELECT says('regress_t_eve', $$ SELECT automation.watch_table('tr.bait', kind => 'tr_bait') $$);
SELECT says('regress_t_eve', $$ SELECT automation.derive_event('tr_bait', 'pay.ok', 'new.ok') $$);
SELECT name FROM automation.define('tr-derived', trigger => automation.on_event('pay.ok', filter => $$ event.kind = 'tr_bait' $$), run_as => 'regress_t_ann', steps => ARRAY[
    automation.sql($$ INSERT INTO tr.effect (what) VALUES ('derived ' || {{ event.id }}) $$)]);
INSERT INTO bait VALUES (1, true);
SELECT happened();
SELECT says('regress_t_ann', $$ SELECT automation.grant_topic('regress_t_eve', 'pay.ok', 'emit') $$);
INSERT INTO bait VALUES (2, true);
SELECT happened();
SELECT says('regress_t_ann', $$ SELECT automation.revoke_topic('regress_t_eve', 'pay.ok', 'emit') $$);

-- a dedup key is the role's own
SELECT says('regress_t_bob', $$ SELECT automation.emit('pay.ok', '{"by": "bob, forged"}', 'invoice-1') > 0 $$);
SELECT says('regress_t_ann', $$ SELECT automation.emit('pay.ok', '{"by": "ann, invoice-1"}', 'invoice-1') > 0 $$);
SELECT says('regress_t_ann', $$ SELECT automation.emit('pay.ok', '{"by": "ann, again"}', 'invoice-1') > 0 $$);
SELECT happened();

-- mistakes
SELECT says('regress_t_bob', $$ SELECT automation.grant_topic('regress_t_bob', 'ann', 'listen', of => 'regress_t_ann') $$);
SELECT says('regress_t_bob', $$ SELECT automation.revoke_topic('regress_t_ann', 'pay', 'listen', of => 'regress_t_eve') $$);
SELECT says('regress_t_bob', $$ SELECT automation.grant_topic('nobody_at_all', 'ann', 'listen') $$);
SELECT says('regress_t_bob', $$ SELECT automation.grant_topic('regress_t_ann', 'ann.*', 'listen') $$);
SELECT says('regress_t_bob', $$ SELECT automation.grant_topic('regress_t_ann', 'ann', 'read') $$);
SELECT says('regress_t_bob', $$ SELECT automation.grant_topic('regress_t_ann', 'automation.failed', 'listen') $$);
SELECT says('regress_t_view', $$ SELECT automation.grant_topic('regress_t_ann', 'ann', 'listen') $$);
-- in the audit
SELECT role, action, details FROM automation.audit_log WHERE action LIKE 'topic.%' AND details ->> 'role' LIKE 'regress_t%' ORDER BY at;

-- of a role that is gone nothing is left
SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'tr-%';
SELECT automation.unwatch_table('bait');
SELECT automation.revoke_usage('regress_t_ann'), automation.revoke_usage('regress_t_bob'), automation.revoke_usage('regress_t_eve'), automation.revoke_usage('regress_t_view');
SET client_min_messages = warning;
DROP SCHEMA tr CASCADE;
DROP ROLE regress_t_ann, regress_t_bob, regress_t_eve, regress_t_view;
SELECT automation.sweep() >= 0;
SELECT count(*) FROM automation_internal.topic_grant;
