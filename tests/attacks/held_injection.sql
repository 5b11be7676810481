-- attack: run SQL as the owner of an automation through values
-- attacker: app, who writes a watched table
-- must not happen: a step does anything with a value but store it
\i :attack_lib
\c attack alice
CREATE TABLE inbox (id int PRIMARY KEY, t text, j jsonb, a text[]);
CREATE TABLE outbox (id int, t text, j jsonb, a text[], who name DEFAULT current_user);
CREATE TABLE precious (n int);
INSERT INTO precious VALUES (1);
GRANT USAGE ON SCHEMA alice TO app;
GRANT SELECT, INSERT ON inbox TO app;
SELECT automation.watch_table('inbox');
SELECT automation.define('a-copy', trigger => automation.on_created('inbox'), breaker => 0, steps => ARRAY[
    automation.sql($$ INSERT INTO alice.outbox (id, t, j, a)
                      SELECT {{ new.id }}, {{ new.t }}, {{ new.j }}::jsonb, ARRAY(SELECT jsonb_array_elements_text({{ new.a }}::jsonb)) $$)]);
\c attack app
INSERT INTO alice.inbox
SELECT n, s, jsonb_build_object(s, s, 'l', jsonb_build_array(s, NULL, n)), ARRAY[s, s || n, '']
  FROM (SELECT row_number() OVER () AS n, piece || tail AS s
          FROM unnest(ARRAY['', '''', '''''', '"', '\', '\''', '$$', '$1', '$x$', ';', '--', '/*', '*/', '%s', '{{ new.id }}', '{{', '}}',
                            '{"a": 1}', '[1, 2]', 'NULL', 'null', 'true', '-- {{ 1 }}', E'\n', E'\r\n', E'\t', E'\x01', E'\x7f', U&'\00a0', U&'\2028',
                            U&'\+01F4A9', U&'\202E', U&'\FEFF', '''); DROP TABLE alice.precious; --', '$$; DROP TABLE alice.precious; $$',
                            '"}, "x": {"', '{{ state.inbox["1"].t }}', '{{ (1/0) }}', '0 OR 1=1', '\x00', '${jndi:ldap://x}', '#{7*7}', '{,}', '{"a","b"}']) AS piece,
               unnest(ARRAY['', '''; DROP TABLE alice.precious; --', '$$; DELETE FROM alice.precious; $$', '{{ new.t }}', ''' || (SELECT 1/0)::text || ''',
                            repeat('x', 100), ' $1 $2 $3 ']) AS tail) AS hostile;
\c attack postgres
SELECT attack.wait_for($$ SELECT count(*) = (SELECT count(*) FROM alice.inbox) FROM automation.runs WHERE automation = 'a-copy' AND status IN ('completed', 'failed') $$, 60);
SELECT attack.held(count(*) >= 300, 'hostile rows: ' || count(*)) FROM alice.inbox;
SELECT attack.held(count(*) = 0, 'no run failed') FROM automation.runs WHERE automation = 'a-copy' AND status <> 'completed';
SELECT attack.held(count(*) = 0, 'every effect equals the literal value')
  FROM (SELECT id, t, j, a FROM alice.inbox EXCEPT SELECT id, t, j, a FROM alice.outbox) AS different;
SELECT attack.held(count(*) = (SELECT count(*) FROM alice.inbox) AND bool_and(who = 'alice'), 'once each, as alice') FROM alice.outbox;
SELECT attack.held(n = 1, 'the other table is untouched') FROM alice.precious;
