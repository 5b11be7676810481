-- The worst texts through every function that takes one: a clear error or the right value, within 50 ms, and the session
-- lives. tests/hostile.rs has the other two hundred.
\set SHOW_CONTEXT never
CREATE SCHEMA hos;
SET search_path = hos, public;
CREATE TABLE texts (id int GENERATED ALWAYS AS IDENTITY, name text, text text);
INSERT INTO texts (name, text) VALUES
    ('10k parentheses', repeat('(', 10000) || '1' || repeat(')', 10000)),
    ('10k open brackets', repeat('[', 10000)),
    ('500k open braces', repeat('{', 500000)),
    ('1 MB of one name', repeat('a', 1000000)),
    ('1 MB quoted', '''' || repeat('x', 1000000) || ''''),
    ('1 MB never closed', '''' || repeat('x', 1000000)),
    ('500k digits', repeat('9', 500000)),
    ('huge exponent', '1e999999999999'),
    ('numeric at its limit', '1e131071 * 1e131071'),
    ('100k not', repeat('not ', 100000) || 'true'),
    ('100k minus', repeat('- ', 100000) || '1'),
    ('100k pipes', '''a''' || repeat('|upper', 100000)),
    ('100k members', 'new' || repeat('.a', 100000)),
    ('100k questions', repeat('true ? ', 100000)),
    ('100k ands', repeat('true and ', 100000) || 'true'),
    ('comment never closed', '/*' || repeat('/*', 100000)),
    ('braces never closed', '{{ new.id'),
    ('50k open braces in pairs', repeat('{{', 50000)),
    ('bidi override', U&'new.id\202E = 1'),
    ('zero width', U&'new\200B.id'),
    ('byte order mark', U&'\FEFFnew.id'),
    ('curly quotes', U&'new.a = \201Cx\201D'),
    ('lone surrogate', '"\ud800"'),
    ('escaped NUL', '"\u0000"'),
    ('prototype', 'new.__proto__.constructor'),
    ('id with everything', 'state.orders["a.b:*''\"#"].x'),
    ('regex that explodes', 'matches(''' || repeat('a', 1000) || ''', ''(a*)*(a*)*(a*)*b'')'),
    ('regex that is large', 'matches(''a'', ''((a{1000}){1000}){1000}'')'),
    ('a text without end', 'pad_left(''x'', 1000000000, ''y'')'),
    ('a list without end', 'range(1, 1000000000)'),
    ('like that explodes', '''' || repeat('a', 20000) || ''' like ''' || repeat('%a', 1000) || 'b'''),
    ('deep JSON', '{"and":' || repeat('[', 5000) || repeat(']', 5000) || '}'),
    ('wide JSON', '{"and":[' || repeat('true,', 20000) || 'true]}'),
    ('a hundred # in a topic', repeat('#.a.', 100) || 'b'),
    ('stars', repeat('*', 1000)),
    ('cron of 100k commas', repeat('1,', 100000) || '1 * * * *'),
    ('cron with large numbers', '99999999999999999999 * * * *');
-- what became of a call: its SQLSTATE and message, or that it returned; slow if it was in each of many tries, so that a busy machine is not a
-- slow text
CREATE FUNCTION outcome(call text, given text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    began timestamptz;
    said text;
BEGIN
    FOR try IN 1..30 LOOP
        began := clock_timestamp();
        said := 'a value';
        BEGIN
            EXECUTE call USING given;
        EXCEPTION WHEN OTHERS THEN
            said := sqlstate || ' ' || left(sqlerrm, 60);
            IF sqlstate LIKE 'XX%' THEN
                RAISE;
            END IF;
        END;
        IF clock_timestamp() - began < interval '250 ms' THEN
            RETURN said;
        END IF;
    END LOOP;
    RETURN said || ', slow: ' || (clock_timestamp() - began);
END $$;
SET client_min_messages = error;
SELECT t.name, outcome('SELECT automation.evaluate($1, ''{"new": {"id": 7}}'')', t.text) AS evaluate FROM texts AS t ORDER BY t.id;
SELECT t.name, outcome('SELECT automation.extract_refs($1)', t.text) AS extract_refs FROM texts AS t ORDER BY t.id;
SELECT t.name, outcome('SELECT automation.match_topic($1, repeat(''a.'', 500) || ''a'')', t.text) AS match_topic FROM texts AS t ORDER BY t.id;
SELECT t.name, outcome('SELECT automation.match_filter(to_jsonb($1), ''{"a": 1}'')', t.text) AS match_filter FROM texts AS t ORDER BY t.id;
SELECT t.name, outcome('SELECT automation.next_fire($1)', t.text) AS next_fire FROM texts AS t ORDER BY t.id;
SELECT t.name, outcome('SELECT automation.next_fire(''@daily'', $1)', t.text) AS zone FROM texts AS t ORDER BY t.id;
SELECT t.name, outcome('SELECT count(*) FROM automation.validate(jsonb_build_object(''name'', ''h'', ''condition'', $1, ''triggers'', ''[{"on": "call"}]''::jsonb,
    ''steps'', jsonb_build_array(jsonb_build_object(''do'', ''notify'', ''channel'', ''c'', ''payload'', $1))))', t.text) AS validate FROM texts AS t ORDER BY t.id;
-- most of what is long in a statement is for Postgres to refuse
SELECT t.name, outcome('SELECT automation.define(''h-define'', trigger => automation.on_call(), steps => ARRAY[automation.sql(''SELECT '' || $1)])', left(t.text, 20000)) AS define FROM texts AS t ORDER BY t.id;
-- documents nested deeper than anybody reads
SELECT f.call, outcome(f.call, repeat('[', 6000) || repeat(']', 6000))
  FROM (VALUES ('SELECT automation.evaluate(''new'', jsonb_build_object(''new'', $1::jsonb))'), ('SELECT automation.match_filter($1::jsonb, ''{}'')'),
               ('SELECT automation.match_filter(''{"/a": {"eq": 1}}'', $1::jsonb)'), ('SELECT automation.validate($1::jsonb)'), ('SELECT automation.define($1::jsonb)'),
               ('SELECT automation.define(document => $1)'), ('SELECT automation.emit(''h.deep'', $1::jsonb)'), ('SELECT automation.set_state(''h_deep'', ''1'', $1::jsonb)')) AS f (call);
SELECT count(*) AS defined FROM automation.automations WHERE name = 'h-define';
SET client_min_messages = warning;
SELECT ok FROM automation.pause('h-define');
DROP SCHEMA hos CASCADE;
