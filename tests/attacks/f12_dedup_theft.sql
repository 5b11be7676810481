-- attack: take the dedup key of an event before its emitter does
-- attacker: owner_b, an author who can guess the key
-- must not happen: owner_a's event is dropped, or owner_a's automation runs on the payload of owner_b
\i :attack_lib
CREATE TABLE owner_a.effect (who text);
ALTER TABLE owner_a.effect OWNER TO owner_a;
SET SESSION AUTHORIZATION owner_a;
SELECT FROM automation.define('a-paid', trigger => automation.on_event('acme.paid'), steps => ARRAY[
    automation.sql($$ INSERT INTO owner_a.effect VALUES ({{ payload.who }}) $$)]);
SET SESSION AUTHORIZATION owner_b;
SELECT automation.emit('acme.paid', '{"who": "forged"}', 'invoice-1') AS forged \gset
SET SESSION AUTHORIZATION owner_a;
SELECT automation.emit('acme.paid', '{"who": "owner_a"}', 'invoice-1') AS own \gset
SELECT attack.held(:own <> :forged, 'owner_a''s event is an event of its own');
SELECT attack.held(automation.emit('acme.paid', '{"who": "again"}', 'invoice-1') = :own, 'the key still works for its role');
RESET SESSION AUTHORIZATION;
SELECT attack.wait_for($$ SELECT count(*) > 0 FROM owner_a.effect $$);
SELECT attack.held(array_agg(who) = '{owner_a}', 'it ran once, for owner_a') FROM owner_a.effect;
