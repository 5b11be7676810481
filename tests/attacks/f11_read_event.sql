-- attack: read the events that a stranger emits
-- attacker: owner_b, an author who listens to everything, and who gives owner_a grants that owner_a never asked for
-- must not happen: a payload of owner_a's reaches an automation, a wait, a subscription or a view of owner_b's
\i :attack_lib
CREATE TABLE owner_b.effect (what text);
ALTER TABLE owner_b.effect OWNER TO owner_b;
\c attack owner_b
SELECT FROM automation.define('b-spy', trigger => automation.on_event('#'), steps => ARRAY[
    automation.sql($$ INSERT INTO owner_b.effect VALUES ({{ event.topic }}) $$)]);
SELECT FROM automation.define('b-wait', trigger => automation.on_event('b.wait'), steps => ARRAY[
    automation.wait_for_event('a.private.salary', timeout => '1 day', lookback => '1 hour'),
    automation.sql($$ INSERT INTO owner_b.effect VALUES ('waited: ' || {{ event.topic }}) $$)]);
SELECT FROM automation.grant_topic('owner_a', 'a.private', 'emit');
SELECT FROM automation.grant_topic('owner_b', '', 'listen');
SELECT attack.refused($$ SELECT automation.grant_topic('owner_b', 'a.private', 'listen', of => 'owner_a') $$, '42501');
SELECT automation.emit('b.wait');
\c attack postgres
SELECT attack.wait_for($$ SELECT count(*) = 1 FROM automation.waiting WHERE automation = 'b-wait' $$);
\c attack owner_a
SELECT automation.emit('a.private.salary', '{"ceo": 900000}');
SELECT automation.emit('a.private.salary', '{"ceo": 900000}', tenant => 'b');
\c attack owner_b
SELECT automation.emit('b.after');
SELECT attack.wait_for($$ SELECT count(*) > 0 FROM owner_b.effect WHERE what = 'b.after' $$);
SELECT attack.held(count(*) = 0, 'no automation of owner_b heard it') FROM owner_b.effect WHERE what LIKE '%a.private%';
SELECT attack.held(count(*) = 0, 'the view does not show it') FROM automation.events WHERE topic LIKE 'a.private%' OR payload::text LIKE '%900000%';
SELECT attack.held(count(*) = 1, 'the wait goes on') FROM automation.waiting WHERE automation = 'b-wait';
\c attack viewer
SELECT attack.held(count(*) = 0, 'nor to a viewer') FROM automation.events WHERE topic LIKE 'a.private%';
