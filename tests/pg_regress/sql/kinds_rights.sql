-- Whose a kind is: who reads and writes its states, who changes what is recorded of a table, who takes a name that is free again.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only on
CREATE SCHEMA kr;
SET search_path = kr, public;
CREATE ROLE regress_k_ann LOGIN;
CREATE ROLE regress_k_bob LOGIN;
CREATE ROLE regress_k_tab LOGIN;
SELECT automation.grant_usage('regress_k_ann', 'author'), automation.grant_usage('regress_k_bob', 'author'), automation.grant_usage('regress_k_tab', 'author');
CREATE TABLE effect (seq serial, owner name DEFAULT current_user, what text);
GRANT USAGE, CREATE ON SCHEMA kr TO regress_k_ann, regress_k_bob, regress_k_tab;
GRANT INSERT ON effect TO regress_k_ann, regress_k_bob;
GRANT USAGE ON SEQUENCE effect_seq_seq TO regress_k_ann, regress_k_bob;
CREATE FUNCTION happened() RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM automation.drain();
    RETURN QUERY DELETE FROM kr.effect RETURNING owner || ': ' || what;
END $$;
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

-- a kind without a table belongs to the role that first gives an entity a state
SELECT says('regress_k_ann', $$ SELECT automation.set_state('kr_box', '1', '{"v": "of ann"}') > 0 $$);
SELECT says('regress_k_bob', $$ SELECT automation.state('kr_box', '1') $$);
SELECT says('regress_k_bob', $$ SELECT automation.set_state('kr_box', '1', '{"v": "of bob"}') $$);
SELECT says('regress_k_bob', $$ SELECT automation.patch_state('kr_box', '1', '{"w": 1}') $$);
SELECT says('regress_k_bob', $$ SELECT automation.remove_state('kr_box', '1') $$);
SELECT says('regress_k_bob', $$ SELECT automation.derive_event('kr_box', 'kr.spied', 'true') $$);
SELECT says('regress_k_ann', $$ SELECT automation.state('kr_box', '1') $$);
SELECT automation.state('kr_box', '1');
SELECT says('regress_k_bob', $$ SELECT count(*) FROM automation.events WHERE kind = 'kr_box' $$);
-- not heard by his triggers, not read by his conditions and steps, not written by his steps
SELECT name, notices FROM automation.define('kr-hears', trigger => automation.on_changed('kr_box'), run_as => 'regress_k_bob', steps => ARRAY[
    automation.sql($$ INSERT INTO kr.effect (what) VALUES (concat('heard ', {{ event.next.v }}::text)) $$)]);
SELECT name FROM automation.define('kr-reads', trigger => automation.on_event('kr.read'), run_as => 'regress_k_bob', steps => ARRAY[
    automation.sql($$ INSERT INTO kr.effect (what) VALUES ('read ' || {{ state.kr_box['1'].v }}) $$)]);
SELECT name FROM automation.define('kr-writes', trigger => automation.on_event('kr.write'), run_as => 'regress_k_bob', steps => ARRAY[
    automation.store_state('kr_box', '1', '{"v": "of a step of bob"}')]);
SELECT says('regress_k_ann', $$ SELECT automation.set_state('kr_box', '1', '{"v": "of ann, again"}') > 0 $$);
SELECT automation.emit('kr.read') > 0, automation.emit('kr.write') > 0;
SELECT happened();
SELECT automation, status, message FROM automation.runs WHERE automation LIKE 'kr-%' ORDER BY automation;
-- granted to read, then to write, each by itself
SELECT says('regress_k_ann', $$ SELECT automation.grant_topic('regress_k_bob', 'kr_box', 'listen') $$);
SELECT says('regress_k_bob', $$ SELECT automation.state('kr_box', '1') $$);
SELECT says('regress_k_bob', $$ SELECT automation.set_state('kr_box', '1', '{"v": "of bob"}') $$);
SELECT says('regress_k_ann', $$ SELECT automation.set_state('kr_box', '1', '{"v": "shown"}') > 0 $$);
SELECT automation.emit('kr.read') > 0;
SELECT happened() ORDER BY 1;
SELECT says('regress_k_bob', $$ SELECT count(*) FROM automation.events WHERE kind = 'kr_box' $$);
SELECT says('regress_k_ann', $$ SELECT automation.grant_topic('regress_k_bob', 'kr_box', 'emit') $$);
SELECT automation.emit('kr.write') > 0;
SELECT happened();
SELECT says('regress_k_ann', $$ SELECT automation.state('kr_box', '1') $$);
SELECT says('regress_k_bob', $$ SELECT automation.remove_state('kr_box', '1') > 0 $$);
SELECT happened();

-- a watched table: TRIGGER and SELECT let a role watch it, and no more than that
CREATE TABLE item (id int PRIMARY KEY, v text, w text);
ALTER TABLE item OWNER TO regress_k_tab;
GRANT SELECT, TRIGGER, INSERT ON item TO regress_k_ann, regress_k_bob;
SELECT says('regress_k_ann', $$ SELECT automation.watch_table('kr.item', kind => 'kr_item') $$);
SELECT says('regress_k_bob', $$ SELECT automation.watch_table('kr.item', kind => 'kr_item') $$) AS again_is_nothing;
SELECT says('regress_k_ann', $$ SELECT automation.derive_event('kr_item', 'kr.wow', 'true') $$);
SELECT says('regress_k_bob', $$ SELECT automation.watch_table('kr.item', kind => 'kr_item', ignore => '{v}') $$);
SELECT says('regress_k_bob', $$ SELECT automation.watch_table('kr.item', kind => 'kr_item', columns => '{id}') $$);
SELECT says('regress_k_bob', $$ SELECT automation.watch_table('kr.item', kind => 'kr_item', tenant_column => 'v') $$);
SELECT says('regress_k_bob', $$ SELECT automation.watch_table('kr.item', kind => 'kr_stolen') $$);
SELECT says('regress_k_bob', $$ SELECT automation.watch_table('kr.item') $$);
SELECT says('regress_k_bob', $$ SELECT automation.unwatch_table('kr.item') $$);
SELECT says('regress_k_bob', $$ SELECT automation.drop_derived_event('kr_item', 'kr.wow') $$);
SELECT says('regress_k_bob', $$ SELECT automation.derive_event('kr_item', 'kr.wow', 'false') $$);
SELECT name FROM automation.define('kr-item', trigger => automation.on_created('kr_item'), run_as => 'regress_k_ann', steps => ARRAY[
    automation.sql($$ INSERT INTO kr.effect (what) VALUES ('item ' || {{ new.v }}) $$)]);
INSERT INTO item VALUES (1, 'first');
SELECT happened();
-- he adds a rule of his own, which is his to drop; the table's owner and the one who watched may drop it as well
SELECT says('regress_k_bob', $$ SELECT automation.derive_event('kr_item', 'kr.his', 'true') $$);
SELECT says('regress_k_bob', $$ SELECT automation.drop_derived_event('kr_item', 'kr.his') $$);
SELECT says('regress_k_bob', $$ SELECT automation.derive_event('kr_item', 'kr.his', 'true') $$);
SELECT says('regress_k_tab', $$ SELECT automation.drop_derived_event('kr_item', 'kr.his') $$);
-- the one who watched and the table's owner change and end it
SELECT says('regress_k_ann', $$ SELECT automation.watch_table('kr.item', kind => 'kr_item', ignore => '{w}') $$);
SELECT says('regress_k_tab', $$ SELECT automation.watch_table('kr.item', kind => 'kr_item') $$);
REVOKE TRIGGER ON item FROM regress_k_tab;
SELECT says('regress_k_tab', $$ SELECT automation.unwatch_table('kr.item') $$);

-- a name that is free again: not for a stranger's table, nor for a stranger's state, while others listen to it
SELECT says('regress_k_bob', $$ SELECT automation.set_state('kr_item', '1', '{"v": "forged"}') $$);
CREATE TABLE bait (id int PRIMARY KEY, v text);
ALTER TABLE bait OWNER TO regress_k_bob;
GRANT SELECT ON bait TO regress_k_ann;
SELECT says('regress_k_bob', $$ SELECT automation.watch_table('kr.bait', kind => 'kr_item') $$);
SELECT says('regress_k_bob', $$ SELECT automation.watch_table('kr.bait', kind => 'kr_bait') $$);
SELECT says('regress_k_bob', $$ SELECT automation.watch_table('kr.bait', kind => 'kr_item') $$);
-- the role that had it takes it up again, its automation goes on
SELECT says('regress_k_ann', $$ SELECT automation.watch_table('kr.item', kind => 'kr_item') $$);
INSERT INTO item VALUES (2, 'second');
SELECT happened();
-- a migration drops the table and makes it anew: by the role that watched it, or by the table's owner
DROP TABLE item;
SELECT says('regress_k_bob', $$ SELECT automation.watch_table('kr.bait', kind => 'kr_item') $$);
CREATE TABLE item (id int PRIMARY KEY, v text);
ALTER TABLE item OWNER TO regress_k_tab;
GRANT SELECT ON item TO regress_k_ann;
SELECT says('regress_k_tab', $$ SELECT automation.watch_table('kr.item', kind => 'kr_item') $$);
INSERT INTO item VALUES (3, 'third');
SELECT happened();
DROP TABLE item;
SELECT automation.sweep() >= 0 AS forgotten;
SELECT says('regress_k_bob', $$ SELECT automation.watch_table('kr.bait', kind => 'kr_item') $$);
CREATE TABLE item (id int PRIMARY KEY, v text);
ALTER TABLE item OWNER TO regress_k_tab;
GRANT SELECT ON item TO regress_k_ann;
SELECT says('regress_k_tab', $$ SELECT automation.watch_table('kr.item', kind => 'kr_item') $$);
INSERT INTO item VALUES (4, 'fourth');
SELECT happened();
DROP TABLE item;
-- a run that waits for an entity of it listens, too
SELECT ok FROM automation.pause('kr-item');
SELECT says('regress_k_ann', $$ SELECT automation.set_state('kr_box', '2', '{}') > 0 $$);
SELECT name FROM automation.define('kr-waits', trigger => automation.on_event('kr.wait'), run_as => 'regress_k_ann', steps => ARRAY[
    automation.wait_for_event('kr_item.created', timeout => '1 hour')]);
SELECT automation.emit('kr.wait') > 0;
SELECT happened();
SELECT ok FROM automation.pause('kr-waits');
SELECT says('regress_k_bob', $$ SELECT automation.watch_table('kr.bait', kind => 'kr_item') $$);
-- nobody listens any more
SELECT count(automation.cancel_run(id)) FROM automation.runs WHERE automation = 'kr-waits' AND status = 'waiting';
SELECT happened();
SELECT says('regress_k_bob', $$ SELECT automation.watch_table('kr.bait', kind => 'kr_item') $$);
-- in the audit
SELECT role, action, details - 'was' FROM automation.audit_log WHERE role LIKE 'regress_k%' AND (action LIKE 'table.%' OR action LIKE 'kind.%') ORDER BY at;

SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'kr-%';
SELECT automation.unwatch_table('bait');
SELECT automation.revoke_usage('regress_k_ann'), automation.revoke_usage('regress_k_bob'), automation.revoke_usage('regress_k_tab');
SET client_min_messages = warning;
DROP SCHEMA kr CASCADE;
DROP ROLE regress_k_ann, regress_k_bob, regress_k_tab;
