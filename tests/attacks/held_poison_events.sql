-- attack: poison the routing of all with events and rules that cannot be worked out
-- attacker: mallory, an author
-- must not happen: alice's automation on the same topic misses an event or waits
\i :attack_lib
\c attack alice
CREATE TABLE alice.effect (n int);
SELECT automation.define('alices', trigger => automation.on_event('shared.topic', filter => 'payload.n is not null'),
    steps => ARRAY[automation.sql($$ INSERT INTO alice.effect VALUES ({{ payload.n }}) $$)]) IS NOT NULL AS defined;
\c attack mallory
SELECT automation.define('m-poison', trigger => automation.on_event('shared.#', filter => 'payload.n / 0 > payload.x[payload.n]'),
    steps => ARRAY[automation.sql('SELECT 1')]) IS NOT NULL AS defined;
SELECT count(automation.emit('shared.poison', p::jsonb))
  FROM unnest(ARRAY['{"n": 1e400}', '[]', '"x"', 'null', '{"n": {"n": {}}}', '{"n": "\ud83d\ude00"}']) AS p;
-- of a derived event over a table of hers, too
CREATE TABLE mallory.t (id int PRIMARY KEY, n int);
SELECT automation.watch_table('mallory.t', kind => 'm_t') IS NOT NULL AS watched;
SELECT automation.derive_event('m_t', 'm.derived', '1 / new.n > 0') IS NOT NULL AS derived;
INSERT INTO mallory.t VALUES (1, 0), (2, 1);
\c attack alice
SELECT count(automation.emit('shared.topic', jsonb_build_object('n', n))) FROM generate_series(1, 20) AS n;
SELECT attack.wait_for('SELECT count(*) = 20 FROM alice.effect');
SELECT attack.held(count(DISTINCT n) = 20, 'alice''s automation ran once for each of her events') FROM alice.effect;
