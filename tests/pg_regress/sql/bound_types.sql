-- How {{ }} in SQL is bound: by the type that its place asks for, else by the value's own.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
CREATE SCHEMA bound;
SET search_path = bound, public;
CREATE TABLE effect (n serial, what jsonb);
CREATE TABLE item (id int PRIMARY KEY, amount numeric, code text, tags text[]);
INSERT INTO item VALUES (7, 1.50, '7', '{a}');
-- a run of one statement for each payload; the same prepared step for all of them
CREATE FUNCTION go(sql text, VARIADIC payloads text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE ids bigint[] = '{}'; p text;
BEGIN
    PERFORM automation.define('bt', trigger => automation.on_call(), steps => ARRAY[automation.sql(sql, id => 's')]);
    FOREACH p IN ARRAY payloads LOOP ids = ids || automation.start_run('bt', p::jsonb); END LOOP;
    PERFORM automation.drain();
    RETURN QUERY SELECT coalesce(s.result ->> 'row', s.result::text, r.error) FROM unnest(ids) WITH ORDINALITY AS i (id, no)
        JOIN automation.runs AS r ON r.id = i.id LEFT JOIN automation.run_steps AS s ON s.run_id = r.id ORDER BY i.no;
END $$;
-- where any type will do
SELECT go($$ SELECT jsonb_build_object('n', {{ payload.n }}) AS o, pg_typeof({{ payload.n }})::text AS type $$,
    '{"n": 1}', '{"n": 1.50}', '{"n": "1"}', '{"n": true}', '{"n": [1, 2]}', '{"n": {"a": [null]}}', '{"n": null}', '{}',
    '{"n": 12345678901234567890}', '{"n": 1}', '{"n": "again"}', '{"n": ["x"]}');
SELECT go($$ SELECT pg_typeof({{ now() }})::text AS time, pg_typeof({{ date('2024-02-01') }})::text AS date, pg_typeof({{ duration('1 day') }})::text AS length $$, '{}');
SELECT go($$ SELECT to_jsonb({{ payload.n }}) AS j, concat({{ payload.n }}, '!') AS c, format('%s', {{ payload.n }}) AS f $$, '{"n": 1}', '{"n": [1]}', '{"n": null}', '{"n": "x"}');
-- a column of the result
SELECT go($$ SELECT {{ payload.n }} AS n, {{ payload.n }}::text AS t $$, '{"n": 1}', '{"n": [1, 2]}', '{"n": "1"}', '{"n": null}');
SELECT go($$ INSERT INTO effect (what) VALUES ('1') RETURNING {{ payload.n }} AS n $$, '{"n": 1}', '{"n": "x"}');
-- where it chooses an operator or a function
SELECT go($$ SELECT -{{ payload.n }} AS minus, abs({{ payload.n }}) AS abs, {{ payload.n }} / {{ payload.m }} AS ratio $$,
    '{"n": 1, "m": 2}', '{"n": 1.5, "m": 3}', '{"n": null, "m": 1}', '{"n": -1, "m": null}', '{"n": "x", "m": 1}', '{"n": 1, "m": 4}');
SELECT go($$ SELECT ({{ payload.at }} + interval '1 day') AT TIME ZONE 'UTC' > '2024-01-01' AS later $$, '{"at": null}');
SELECT go($$ SELECT ({{ now() }} + interval '1 day') > now() AS next $$, '{}');
SELECT go($$ UPDATE item SET amount = -{{ payload.n }} WHERE id = {{ payload.id }} RETURNING amount $$, '{"n": 2, "id": 7}', '{"n": 2.5, "id": "7"}', '{"n": null, "id": 7}');
-- where its place asks for a type, that stays
SELECT go($$ SELECT pg_typeof({{ payload.n }} + 1)::text AS int, (SELECT code FROM item WHERE code = {{ payload.n }}) AS text,
    (SELECT count(*) FROM item WHERE id = {{ payload.n }}) AS by_id, {{ payload.n }} || 'x' AS joined, coalesce({{ payload.n }}, 'none') AS or_none $$, '{"n": 7}', '{"n": "7"}', '{"n": null}');
SELECT go($$ INSERT INTO item (id, tags) VALUES ({{ payload.id }}, {{ payload.tags }}) RETURNING tags, id = ANY ({{ payload.ids }}) AS any $$, '{"id": 8, "tags": ["x", "y"], "ids": [8, 9]}');
-- what no type can save keeps the parser's own words
SELECT go($$ SELECT no_such_function({{ payload.n }}) $$, '{"n": 1}');
SELECT go($$ SELECT unnest({{ payload.n }}) $$, '{"n": [1]}');
-- the same for the query of a bulk step
SELECT name FROM automation.define('bt-bulk', trigger => automation.on_call(), steps => ARRAY[automation.bulk(
    $$ SELECT jsonb_build_object('n', {{ payload.n }}) AS o, {{ payload.n }} AS n, -{{ payload.m }} AS m $$,
    ARRAY[automation.sql($$ INSERT INTO effect (what) VALUES (jsonb_build_object('row', {{ item }})) $$)], id => 'b')]);
SELECT automation.start_run('bt-bulk', '{"n": [1, 2], "m": 3}') > 0;
SELECT automation.drain() > 0;
SELECT what FROM effect WHERE what ? 'row';
SELECT automation.drop_automation('bt'), automation.drop_automation('bt-bulk');
SET client_min_messages = warning;
DROP SCHEMA bound CASCADE;
