-- attack: make the engine fail inside
-- attacker: mallory, an author, with arguments that no caller sends on purpose
-- must not happen: an internal error, a raw error of an index, a lost connection
\i :attack_lib
\c attack mallory
CREATE TABLE item (id int PRIMARY KEY);
SELECT automation.watch_table('item', ignore => NULL);
SELECT attack.refused($$ SELECT automation.watch_table('item', columns => '{NULL}') $$, '22004');
SELECT attack.refused($$ SELECT automation.watch_table(4294967295::oid::regclass) $$, '42%');
SELECT attack.refused($$ SELECT automation.unwatch_table(0::regclass) $$, '42%');
SELECT attack.refused($$ SELECT automation.signal('s', (repeat('[', 128) || repeat(']', 128))::jsonb) $$, '54001');
SELECT attack.refused($$ SELECT automation.emit('m.t', (repeat('[', 3000) || repeat(']', 3000))::jsonb) $$, '54001');
SELECT attack.refused($$ SELECT automation.emit(NULL) $$, '22004');
SELECT attack.refused($$ SELECT automation.emit('m.t', dedup_key => string_agg(md5(n::text), '')) FROM generate_series(1, 200) AS n $$, '22023');
SELECT attack.refused($$ SELECT automation.emit('m.t', tenant => repeat('t', 5000)) $$, '22023');
SELECT attack.refused($$ SELECT automation.set_state('m_kind', repeat('i', 5000), '{}') $$, '22023');
SELECT attack.refused($$ SELECT automation.advance('178000000 years') $$, '22%');
SELECT attack.refused($$ SELECT automation.set_clock('infinity') $$, '22%');
SELECT attack.refused($$ SELECT automation.dispatch(-1) $$, '22023');
SELECT attack.refused($$ SELECT automation.next_fire('* * * * *', after => '-infinity') $$, '22%');
SELECT attack.held(pg_backend_pid() > 0, 'the session lives');
