-- attack: store an image of a wrong length by a value whose JSON is larger than a varlena can be
-- attacker: app, who may write a watched table, on a server whose limit for values was raised as far as it goes
-- must not happen: an event is stored that cannot be read, or a write fails
\i :attack_lib
SELECT attack.refused($$ SET automation_engine.max_value_size = '1GB' $$, '%');
ALTER SYSTEM SET automation_engine.max_value_size = '64MB';
SELECT pg_reload_conf();
-- the next session must begin with it
\! until [ "$(psql -X -At -d attack -c 'SHOW automation_engine.max_value_size')" = 64MB ]; do :; done
\c attack postgres
CREATE TABLE app.big (id int PRIMARY KEY, a text, b text, c text, small text);
ALTER TABLE app.big OWNER TO app;
SELECT automation.watch_table('app.big');
SET SESSION AUTHORIZATION app;
-- each \x01 is six bytes of JSON: the first 60 MB fit, the next do not, the small one does again
INSERT INTO app.big VALUES (1, repeat('x', 60000000), repeat(E'\x01', 30000000), repeat('y', 60000000), 'small');
RESET SESSION AUTHORIZATION;
SELECT attack.held(truncated AND length(next ->> 'a') = 60000000 AND next ->> 'b' IS NULL AND length(next ->> 'c') = 60000000
                   AND next ->> 'small' = 'small' AND next ? 'b', 'columns that do not fit are null, and the event says so')
  FROM automation.events WHERE kind = 'big';
ALTER SYSTEM RESET automation_engine.max_value_size;
SELECT pg_reload_conf();
