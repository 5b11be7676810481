-- An event shows the row as SQL sees it: for every type at its extremes, event.next is to_jsonb(row) in UTC, digit for
-- digit, whatever the writer's session has set.
\set SHOW_CONTEXT never
CREATE SCHEMA types;
SET search_path = types, public;
SET client_min_messages = warning;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s "great"');
CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE DOMAIN amount AS numeric(30, 10);
CREATE DOMAIN stamp AS timestamptz;
CREATE DOMAIN list_of_domain AS amount[];
CREATE TYPE pair AS (a int, b text, at timestamptz, m mood);
CREATE TYPE floatrange AS RANGE (subtype = float8);

-- Writes every value into a table of its own, changes each into the next, deletes them, and says what does not agree.
CREATE FUNCTION check_type(type text, VARIADIC literals text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    first bigint := (SELECT coalesce(max(id), 0) FROM automation.events);
    problem text;
BEGIN
    DROP TABLE IF EXISTS sample;
    EXECUTE format('CREATE TABLE sample (id int PRIMARY KEY, v %s, list %s)', type,
                   CASE WHEN type ~ '\[\]|list' THEN 'int[]' ELSE type || '[]' END);
    CREATE TABLE IF NOT EXISTS expected (n serial, next jsonb);
    TRUNCATE expected;
    PERFORM automation.watch_table('sample', kind => 'sample');
    -- the writer's settings must not matter
    SET TimeZone = 'Asia/Kathmandu';
    SET DateStyle = 'German, DMY';
    SET IntervalStyle = 'sql_standard';
    SET bytea_output = 'escape';
    SET extra_float_digits = -10;
    SET xmlbinary = 'hex';
    FOR i IN 1 .. cardinality(literals) LOOP
        EXECUTE format('INSERT INTO sample SELECT %s, x, %s FROM (SELECT %L::%s AS x) AS s', i,
                       CASE WHEN type ~ '\[\]|list' THEN 'NULL' ELSE 'ARRAY[x, NULL]' END, literals[i], type);
    END LOOP;
    RESET TimeZone; RESET DateStyle; RESET IntervalStyle; RESET bytea_output; RESET extra_float_digits; RESET xmlbinary;
    SET TimeZone = 'UTC';
    SET DateStyle = 'ISO';
    SET IntervalStyle = 'postgres';
    FOR i IN 1 .. cardinality(literals) LOOP
        SELECT format('%s %L: %s, not %s', type, literals[i], e.next, to_jsonb(s)) INTO problem
          FROM sample AS s
          LEFT JOIN automation.events AS e ON e.kind = 'sample' AND e.entity_id = i::text AND e.id > first
         WHERE s.id = i AND e.next::text IS DISTINCT FROM to_jsonb(s)::text;
        IF found THEN
            RETURN NEXT problem;
        END IF;
    END LOOP;
    -- each becomes the next: prev and next are the two rows
    first := (SELECT max(id) FROM automation.events);
    EXECUTE 'DELETE FROM sample WHERE id > 1';
    EXECUTE format('UPDATE sample SET v = NULL, list = %L', '{}');
    FOR i IN 1 .. cardinality(literals) LOOP
        INSERT INTO expected (next) SELECT to_jsonb(s) FROM sample AS s;
        EXECUTE format('UPDATE sample SET v = %L::%s', literals[i], type);
    END LOOP;
    INSERT INTO expected (next) SELECT to_jsonb(s) FROM sample AS s;
    RETURN QUERY
    SELECT format('%s update: %s -> %s', type, e.prev, e.next)
      FROM automation.events AS e
     WHERE e.id > first AND e.op = 'updated' AND e.changed = '{v}'
       AND (NOT EXISTS (SELECT FROM expected AS x WHERE x.next::text = e.prev::text)
            OR NOT EXISTS (SELECT FROM expected AS x WHERE x.next::text = e.next::text));
    RESET TimeZone; RESET DateStyle; RESET IntervalStyle;
    PERFORM automation.unwatch_table('sample');
    RETURN NEXT type || ': ' || (SELECT count(*) FROM automation.events AS e WHERE e.kind = 'sample' AND e.id > first
                                    AND e.op = 'updated' AND e.changed = '{v}') || ' changes of ' || cardinality(literals) || ' values';
END $$;

SELECT check_type('boolean', 'true', 'false');
SELECT check_type('smallint', '-32768', '0', '32767');
SELECT check_type('integer', '-2147483648', '0', '2147483647');
SELECT check_type('bigint', '-9223372036854775808', '0', '9007199254740993', '9223372036854775807');
SELECT check_type('real', '0', '-0', '1', '-1.5', '0.1', '1e-45', '3.4028235e38', '-3.4028235e38', '1e6', '1e-5', '123456', '1234567', '1e15', '16777216', 'NaN', 'Infinity', '-Infinity');
SELECT check_type('double precision', '0', '-0', '1', '0.1', '0.30000000000000004', '5e-324', '1.7976931348623157e308', '-1.7976931348623157e308', '1e-5', '1e-4', '0.00012345', '1e14', '1e15', '123456789012345680', '9007199254740993', '1e21', '1e22', 'NaN', 'Infinity', '-Infinity');
SELECT check_type('numeric', '0', '0.00', '-0.1', '1.10', '123456789012345678901234567890.123456789012345678901234567890', '-9999999999999999999999999999999999999999', '1e-100', '1e100', 'NaN', 'Infinity', '-Infinity');
SELECT check_type('numeric(20,4)', '1.5', '-1234567890123456.7891');
SELECT check_type('money', '0', '-12.34', '92233720368547758.07');
SELECT check_type('text', '', 'x', 'ünï – 漢字 😀', E'tab\tnew\nline\rquote"back\\slash/\x01\x1f\x7f', '{"not": "json"}', 'null');
SELECT check_type('varchar(5)', '', 'äöü', 'abcde');
SELECT check_type('char(5)', '', 'ab', 'abcde');
SELECT check_type('"char"', 'a', '', E'\\');
SELECT check_type('name', '', 'pg_class');
SELECT check_type('bytea', '', '\x00ff', '\x5c22');
SELECT check_type('date', '4713-01-01 BC', '0001-01-01', '2020-02-29', '5874897-12-31', 'infinity', '-infinity');
SELECT check_type('time', '00:00', '24:00', '12:34:56.789012');
SELECT check_type('timetz', '00:00+15:59', '24:00-15:59', '12:34:56.7-00:30');
SELECT check_type('timestamp', '4713-01-01 00:00 BC', '0044-03-15 12:00 BC', '2020-02-29 23:59:59.999999', '294276-12-31 23:59:59.999999', 'infinity', '-infinity');
SELECT check_type('timestamptz', '4713-01-01 00:00+00 BC', '0044-03-15 12:00+00 BC', '1900-01-01 00:00+00', '2020-02-29 23:59:59.999999+05:45', '2021-03-28 01:30+00', '294276-12-31 23:59:59.999999+00', 'infinity', '-infinity');
SELECT check_type('interval', '0', '1 year 2 mons 3 days 04:05:06.789', '-1 year -2 mons +3 days -04:05:06', '178000000 years', '1 microsecond');
SELECT check_type('uuid', '00000000-0000-0000-0000-000000000000', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11');
SELECT check_type('json', 'null', '1.10', '"x"', '{"b": 1, "a": [1, 2, {"c": null}], "b": 2}', '[1e5, 1E-5, -0, 12345678901234567890.123]', ' {"spaced" :  true } ');
SELECT check_type('jsonb', 'null', '1.10', '"x"', '{"b": 1, "a": [1, 2, {"c": null}], "": 2}', '12345678901234567890.12345678901234567890', '[]', '{}');
SELECT check_type('xml', '<a/>', '<a b="c">&lt;</a>');
SELECT check_type('inet', '10.0.0.1', '10.0.0.1/8', '::1', 'fe80::1/64');
SELECT check_type('cidr', '10.0.0.0/8', '::/0');
SELECT check_type('macaddr', '08:00:2b:01:02:03');
SELECT check_type('macaddr8', '08:00:2b:01:02:03:04:05');
SELECT check_type('bit(5)', '10101', '00000');
SELECT check_type('bit varying', '', '1', '101010101010101');
SELECT check_type('point', '(0,0)', '(1e300,-1e-300)', '(NaN,Infinity)');
SELECT check_type('circle', '<(0,0),1>');
SELECT check_type('polygon', '((0,0),(1,1),(2,0))');
SELECT check_type('tsvector', 'a fat cat', '''it''''s'':1A');
SELECT check_type('tsquery', 'fat & cat');
SELECT check_type('oid', '0', '4294967295');
SELECT check_type('xid8', '0', '18446744073709551615');
SELECT check_type('pg_lsn', '0/0', 'FFFFFFFF/FFFFFFFF');
SELECT check_type('regclass', 'pg_class', '0');
SELECT check_type('int4range', 'empty', '[1,10)', '(,5]', '(,)');
SELECT check_type('numrange', '[1.10,2.20]', '[,)');
SELECT check_type('tstzrange', '[2020-01-01 00:00+00,2021-01-01 00:00+00)', '[,infinity]');
SELECT check_type('daterange', '[2020-01-01,2020-02-01)');
SELECT check_type('floatrange', '[0.1,0.30000000000000004]');
SELECT check_type('int8multirange', '{}', '{[1,2),[5,9)}');
SELECT check_type('tstzmultirange', '{[2020-01-01 00:00+00,2021-01-01 00:00+00)}');
SELECT check_type('mood', 'sad', 'it''s "great"');
SELECT check_type('positive', '1', '2147483647');
SELECT check_type('amount', '1.5', '12345678901234567890.0123456789');
SELECT check_type('stamp', '2020-02-29 23:59:59.999999+05:45');
SELECT check_type('list_of_domain', '{}', '{1.10,NULL,2}');
SELECT check_type('pair', '(1,x,"2020-01-01 00:00+00",sad)', '(,,,)');
SELECT check_type('int[]', '{}', '{1,NULL,3}', '{{1,2},{3,4}}', '[5:6]={7,8}');
SELECT check_type('text[]', '{}', '{NULL,"NULL","a,b","{x}"}');
SELECT check_type('jsonb[]', '{"{\"a\": 1.10}",NULL}');
SELECT check_type('timestamptz[]', '{"2020-02-29 23:59:59.999999+05:45",infinity}');
SELECT check_type('text[]', '{{a,NULL},{"b\"c","d\\\\e"}}', '{{{x}}}');
SELECT check_type('bool[]', '{t,f,NULL}', '{{t},{f}}');
SELECT check_type('numeric[]', '{NaN,Infinity,-Infinity,1.10,NULL}', '{1e100,-0.00,123456789012345678901234567890.5}');
SELECT check_type('float8[]', '{NaN,Infinity,-Infinity,-0,1e21,5e-324,0.1}');
SELECT check_type('float4[]', '{NaN,Infinity,1e-45,3.4028235e38,16777216}');
SELECT check_type('date[]', '{infinity,2020-02-29,NULL}');
SELECT check_type('timestamp[]', '{-infinity,"2020-02-29 23:59:59.999999"}');
SELECT check_type('json[]', '{"{\"b\": 1, \"a\": [1, 2]}",NULL,"1e5","null"}');
SELECT check_type('mood[]', '{}', '{sad,NULL,"it''s \"great\""}', '{{ok},{sad}}');
SELECT check_type('pair[]', '{"(1,x,\"2020-01-01 00:00+00\",sad)",NULL,"(,,,)"}', '{{"(1,a,,)"},{"(2,b,,)"}}');
SELECT check_type('stamp[]', '{"2020-02-29 23:59:59.999999+05:45",NULL}');
SELECT check_type('int4range[]', '{"[1,10)",empty,NULL}');
SELECT check_type('bytea[]', '{"\\\\x00ff",NULL}');
SELECT check_type('interval[]', '{"1 year 2 mons 3 days 04:05:06.789",NULL}');
SELECT check_type('int2vector', '', '1 2 3');
SELECT check_type('oidvector', '', '1 4294967295');
CREATE DOMAIN list_of_moods AS mood[];
CREATE DOMAIN one_pair AS pair;
CREATE DOMAIN one_pair_again AS one_pair;
CREATE TYPE nest AS ("a ""b" one_pair, list list_of_moods, many pair[], doc jsonb, docs json[], none int[], r int8multirange);
CREATE TYPE nest_of_nests AS (n nest, ns nest[], f float8, d date);
SELECT check_type('list_of_moods', '{}', '{sad,NULL}');
SELECT check_type('one_pair_again', '(1,x,"2020-01-01 00:00+00",sad)', '(,,,)');
SELECT check_type('one_pair[]', '{"(1,x,,)",NULL}');
SELECT check_type('nest', '("(1,x,,ok)","{sad,NULL}","{""(2,y,,)"",NULL}","{""k"": [1.10, {}]}","{""[1, 2]"",NULL}",{},"{[1,2)}")', '(,,,,,,)');
SELECT check_type('nest_of_nests', '("(""(1,x,,ok)"",{},,,,,)","{""(,,,[1],,,)"",NULL}",NaN,infinity)', '(,,,)');
-- a composite type, and the row type of a table, that has lost a column and got another since values were stored
CREATE TABLE inner_row (a int, gone text, b mood[]);
CREATE TABLE outer_row (id int PRIMARY KEY, r inner_row, rs inner_row[]);
INSERT INTO outer_row VALUES (1, '(1,x,{ok})', ARRAY['(2,y,{sad})'::inner_row, NULL]);
ALTER TABLE inner_row DROP COLUMN gone;
ALTER TABLE inner_row ADD COLUMN late date;
SELECT automation.watch_table('outer_row');
UPDATE outer_row SET id = 2;
INSERT INTO outer_row VALUES (3, ROW(3, '{ok}', '2020-02-29')::inner_row, NULL);
SELECT o.id, e.next = to_jsonb(o) AS same, e.next FROM outer_row AS o JOIN automation.events AS e ON e.kind = 'outer_row' AND e.entity_id = o.id::text AND e.op = 'created' ORDER BY 1;
SELECT automation.unwatch_table('outer_row');

-- json that jsonb cannot hold does not fail the write; what cannot be kept is replaced
CREATE TABLE raw (id int PRIMARY KEY, doc json);
SELECT automation.watch_table('raw');
INSERT INTO raw VALUES (1, '{"nul": "a\u0000b"}'), (2, '["\ud800"]'), (3, '[1e999999]');
INSERT INTO raw VALUES (4, ('[0.' || repeat('0', 20000) || '1]')::json);
SELECT entity_id, left(next::text, 60) AS next FROM automation.events WHERE kind = 'raw' ORDER BY id;

-- generated columns are part of the row, identity and defaults too
CREATE TABLE made (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    net numeric NOT NULL,
    gross numeric GENERATED ALWAYS AS (net * 1.25) STORED,
    state text DEFAULT 'new');
SELECT automation.watch_table('made');
INSERT INTO made (net) VALUES (100);
UPDATE made SET net = 200;
SELECT op, changed, prev, next FROM automation.events WHERE kind = 'made' ORDER BY id;

-- toasted values: unchanged ones stay readable, changed ones are seen, a change of storage alone is no change
CREATE TABLE big (id int PRIMARY KEY, n int, body text, doc jsonb);
ALTER TABLE big ALTER body SET STORAGE EXTERNAL;
SELECT automation.watch_table('big');
INSERT INTO big VALUES (1, 0, repeat('x', 30000), jsonb_build_object('k', repeat('y', 30000)));
UPDATE big SET n = 1;
UPDATE big SET body = body || 'z';
UPDATE big SET body = left(body, 30000);
UPDATE big SET body = repeat('x', 30000), doc = jsonb_build_object('k', repeat('y', 30000));
ALTER TABLE big ALTER body SET STORAGE EXTENDED;
UPDATE big SET body = repeat('x', 30000) || '';
SELECT op, changed, length(prev ->> 'body') AS before, length(next ->> 'body') AS after, length(next -> 'doc' ->> 'k') AS doc, truncated
  FROM automation.events WHERE kind = 'big' ORDER BY id;
-- over the cap (64 kB): the write succeeds, the value is left out, the event says so
INSERT INTO big VALUES (2, 0, repeat('x', 65 * 1024), '{}');
UPDATE big SET n = 1 WHERE id = 2;
UPDATE big SET body = repeat('w', 65 * 1024) WHERE id = 2;
UPDATE big SET body = 'small' WHERE id = 2;
DELETE FROM big WHERE id = 2;
SELECT op, changed, prev ->> 'body' AS before, next ->> 'body' AS after, next ? 'body' AS there, truncated
  FROM automation.events WHERE kind = 'big' AND entity_id = '2' ORDER BY id;
-- a key over the cap is kept whole: it is what the entity is known by
CREATE TABLE long_key (id text PRIMARY KEY, v int);
SELECT automation.watch_table('long_key');
INSERT INTO long_key VALUES (repeat('k', 100 * 1024), 1);
SELECT length(entity_id), truncated FROM automation.events WHERE kind = 'long_key';

SET client_min_messages = warning;
SELECT bool_and(automation.unwatch_table(t)) FROM unnest('{raw,made,big,long_key}'::regclass[]) AS t;
DROP SCHEMA types CASCADE;
