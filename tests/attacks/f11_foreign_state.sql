-- attack: read, overwrite and remove the state of a stranger's entities
-- attacker: owner_b, an author, and viewer, who know the kind and the id
-- must not happen: owner_b or viewer reads the state, or it changes
\i :attack_lib
SET SESSION AUTHORIZATION owner_a;
SELECT automation.set_state('a_box', '1', '{"pin": 4711}');
SET SESSION AUTHORIZATION viewer;
SELECT attack.refused($$ SELECT automation.state('a_box', '1') $$, '42501');
SELECT attack.held(count(*) = 0, 'the view shows a viewer nothing of it') FROM automation.events WHERE kind = 'a_box';
SET SESSION AUTHORIZATION owner_b;
SELECT attack.refused($$ SELECT automation.state('a_box', '1') $$, '42501');
SELECT attack.refused($$ SELECT automation.set_state('a_box', '1', '{"pin": 0}') $$, '42501');
SELECT attack.refused($$ SELECT automation.set_state('a_box', '2', '{"pin": 0}') $$, '42501');
SELECT attack.refused($$ SELECT automation.patch_state('a_box', '1', '{"pin": 0}') $$, '42501');
SELECT attack.refused($$ SELECT automation.remove_state('a_box', '1') $$, '42501');
SELECT attack.refused($$ SELECT automation.derive_event('a_box', 'b.spy', 'true') $$, '42501');
SELECT attack.refused($$ SELECT automation.grant_topic('owner_b', 'a_box', 'listen', of => 'owner_a') $$, '42501');
-- the grant of one who does not own the kind says nothing about it
SELECT FROM automation.grant_topic('owner_b', 'a_box', 'listen');
SELECT FROM automation.grant_topic('owner_b', 'a_box', 'emit');
SELECT attack.refused($$ SELECT automation.state('a_box', '1') $$, '42501');
SELECT attack.refused($$ SELECT automation.set_state('a_box', '1', '{"pin": 0}') $$, '42501');
-- steps have no other rights
SELECT FROM automation.define('b-step', trigger => automation.on_event('b.step'), steps => ARRAY[
    automation.store_state('a_box', '1', '{"pin": 0}')]);
SELECT FROM automation.define('b-read', trigger => automation.on_event('b.step'), steps => ARRAY[
    automation.publish('b.got', '{"pin": state.a_box["1"].pin}')]);
SELECT FROM automation.define('b-hear', trigger => automation.on_changed('a_box'), steps => ARRAY[
    automation.publish('b.got', '{"pin": new.pin}')]);
SELECT automation.emit('b.step');
SET SESSION AUTHORIZATION owner_a;
SELECT automation.set_state('a_box', '1', '{"pin": 4712}');
RESET SESSION AUTHORIZATION;
SELECT attack.wait_for($$ SELECT count(*) = 2 FROM automation.runs WHERE automation IN ('b-step', 'b-read') AND ended_at IS NOT NULL $$);
SELECT attack.held(bool_and(status = 'failed'), 'both steps failed') FROM automation.runs WHERE automation IN ('b-step', 'b-read');
SELECT attack.held(automation.state('a_box', '1') = '{"pin": 4712}', 'the state is owner_a''s');
SELECT attack.held(count(*) = 0, 'owner_b got nothing') FROM automation.events WHERE topic = 'b.got' OR (topic LIKE 'b.%' AND payload::text LIKE '%471%');
SELECT attack.held(count(*) = 0, 'no run of b-hear') FROM automation.runs WHERE automation = 'b-hear';
