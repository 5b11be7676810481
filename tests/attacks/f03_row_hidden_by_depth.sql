-- attack: hide a row from a filter by a deeply nested document in another column
-- attacker: app, who may insert into a watched table
-- must not happen: an automation whose filter the row meets does not run, or a step gets NULL for the row
\i :attack_lib
SET SESSION AUTHORIZATION alice;
SET search_path = alice;
CREATE TABLE pay (id int PRIMARY KEY, a int, b int, c int, d int, note jsonb, raw json, tree jsonb[], amount numeric);
CREATE TABLE flagged (id int, row jsonb);
SELECT automation.watch_table('alice.pay');
SELECT automation.define('flag',
    trigger => automation.on_changed('pay', filter => 'new.a = 1 and new.b = 1 and new.c = 1 and new.d = 1 and new.amount > 1000'),
    steps => ARRAY[automation.sql('INSERT INTO alice.flagged VALUES ({{ new.id }}, {{ new }})')]);
RESET SESSION AUTHORIZATION;
GRANT USAGE ON SCHEMA alice TO app;
GRANT INSERT, UPDATE, SELECT ON alice.pay TO app;
SET SESSION AUTHORIZATION app;
INSERT INTO alice.pay VALUES (1, 1, 1, 1, 1, '{}', '{}', NULL, 5000);
INSERT INTO alice.pay VALUES (2, 1, 1, 1, 1, (repeat('[', 300) || repeat(']', 300))::jsonb, '{}', NULL, 5000);
INSERT INTO alice.pay VALUES (3, 1, 1, 1, 1, '{}', (repeat('{"a":', 300) || '1' || repeat('}', 300))::json, NULL, 5000);
INSERT INTO alice.pay VALUES (4, 1, 1, 1, 1, '{}', '{}', ARRAY[(repeat('[', 2000) || repeat(']', 2000))::jsonb], 5000);
INSERT INTO alice.pay VALUES (5, 1, 1, 1, 1, (repeat('[', 99) || repeat(']', 99))::jsonb, '{}', NULL, 5000);
RESET SESSION AUTHORIZATION;
SELECT attack.wait_for('SELECT count(*) = 5 FROM alice.flagged');
SELECT attack.held(bool_and(f.row ->> 'id' = f.id::text), 'each step got its row') FROM alice.flagged AS f;
SELECT attack.held(bool_and(truncated = (entity_id IN ('2', '3', '4'))), 'the events without the deep value say so')
  FROM automation.events WHERE kind = 'pay';
SELECT attack.held(bool_and(next ? 'note' AND next ? 'raw' AND next ? 'tree'), 'the column is there, and null')
  FROM automation.events WHERE kind = 'pay';
-- a document that is given to the engine itself is refused
SET SESSION AUTHORIZATION alice;
SELECT attack.refused($$ SELECT automation.emit('deep.one', (repeat('[', 300) || repeat(']', 300))::jsonb) $$, '54001');
SELECT attack.refused($$ SELECT automation.signal('deep', (repeat('[', 300) || repeat(']', 300))::jsonb) $$, '54001');
SELECT attack.refused($$ SELECT automation.set_state('deep', '1', jsonb_build_object('a', (repeat('[', 300) || repeat(']', 300))::jsonb)) $$, '54001');
SELECT attack.refused($$ SELECT automation.patch_state('deep', '1', jsonb_build_object('a', (repeat('[', 300) || repeat(']', 300))::jsonb)) $$, '54001');
SELECT automation.set_state('deep', '2', jsonb_build_object('a', (repeat('[', 126) || repeat(']', 126))::jsonb));
SELECT attack.refused($$ SELECT automation.patch_state('deep', '2', '{"b": 1}'); SELECT 1/0 $$, '22012');
RESET SESSION AUTHORIZATION;
