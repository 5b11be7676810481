-- A wait on an entity wakes however its id is spelled: the read casts the id to the key's type, the wake-index must as well.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
SET timezone = 'Asia/Tokyo';
SET datestyle = 'SQL, DMY';
SET intervalstyle = 'iso_8601';
SET bytea_output = 'escape';
CREATE SCHEMA wait_ids;
SET search_path = wait_ids, public;
CREATE TYPE colour AS ENUM ('red', 'light blue');
CREATE DOMAIN whole AS int CHECK (VALUE > 0);
CREATE DOMAIN price AS numeric(10, 2);
CREATE DOMAIN code AS whole;
CREATE COLLATION careless (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
-- for each type of key a row, and spellings that read it
CREATE TABLE sample (no serial PRIMARY KEY, type text, stored text, spellings text[]);
INSERT INTO sample (type, stored, spellings) VALUES
    ('int2', '7', '{7,007," 7 ",+7}'),
    ('int4', '-7', '{-7,-007," -7"}'),
    ('int8', '9007199254740993', '{9007199254740993,0009007199254740993}'),
    ('oid', '42', '{42,042," 42"}'),
    ('float8', '-0', '{0,-0,0.0,0e5}'),
    ('float8', '1e20', '{1e20,100000000000000000000,10E19}'),
    ('numeric', '1.50', '{1.5,1.50,1.500,15e-1,01.5}'),
    ('numeric', '100', '{100,1e2,100.0}'),
    ('numeric(10, 2)', '1.50', '{1.5,1.50,1.500}'),
    ('numeric', 'NaN', '{NaN,nan}'),
    ('text', 'Ab c ', '{"Ab c "}'),
    ('text', '1.50', '{1.50}'),
    ('text COLLATE careless', 'Ab', '{Ab,AB,ab}'),
    ('varchar(10)', '007', '{007}'),
    ('char(5)', 'ab', '{ab,"ab ","ab   "}'),
    ('name', 'ab', '{ab}'),
    ('uuid', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
     '{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11,"{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",a0eebc999c0b4ef8bb6d6bb9bd380a11}'),
    ('date', '2024-02-01', '{2024-02-01,"1 February 2024",01/02/2024,20240201}'),
    ('timestamp', '2024-02-01 08:00', '{2024-02-01T08:00:00,"2024-02-01 08:00",2024-02-01T08:00:00.000}'),
    ('timestamptz', '2024-02-01 08:00:00.5Z', '{2024-02-01T08:00:00.5Z,"2024-02-01 17:00:00.5","2024-02-01 09:00:00.50+01",2024-02-01T08:00:00.5+00:00}'),
    ('time', '08:00', '{08:00,08:00:00,"8:00 am"}'),
    ('timetz', '08:00+00', '{08:00+00,08:00:00Z}'),
    ('interval', '1 day', '{"1 day","24 hours",P1D,24:00}'),
    ('bytea', '\x4100ff', '{"\\x4100ff","\\x4100FF","A\\000\\377"}'),
    ('boolean', 'true', '{true,t,yes,1,on}'),
    ('colour', 'light blue', '{"light blue"}'),
    ('whole', '7', '{7,007}'),
    ('price', '1.50', '{1.5,1.50}'),
    ('code', '7', '{7,007}'),
    ('inet', '10.0.0.1', '{10.0.0.1,10.0.0.1/32}'),
    ('inet', '::1', '{::1,0:0:0:0:0:0:0:1}'),
    ('cidr', '10.0.0.0/8', '{10/8,10.0.0.0/8}'),
    ('macaddr', '08:00:2b:01:02:03', '{08:00:2b:01:02:03,08-00-2B-01-02-03,0800.2b01.0203}'),
    ('bit(3)', '101', '{101}'),
    ('int[]', '{1,2}', '{"{1,2}","{ 1, 2 }"}'),
    ('jsonb', '{"a": 1.0}', '{"{\"a\": 1.0}","{\"a\":1.00}"}');
-- keys of several columns: expressions write them with blanks, events without
CREATE TABLE sample_of_many (no serial PRIMARY KEY, columns text, stored text, spellings text[]);
INSERT INTO sample_of_many (columns, stored, spellings) VALUES
    ('a int, b text', $$ 1, 'x' $$, ARRAY['[1,"x"]', '[1, "x"]', ' [ 1 , "x" ] ', '["1", "x"]', '["001", "x"]']),
    ('a numeric, b char(4)', $$ 1.50, 'x' $$, ARRAY['[1.5, "x"]', '[1.50,"x   "]', '["1.500", "x "]']),
    ('a uuid, b date', $$ 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2024-02-01' $$,
     ARRAY['["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "20240201"]', '["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11","2024-02-01"]']),
    ('a int8, b timestamptz, c boolean', $$ 7, '2024-02-01 08:00Z', true $$,
     ARRAY['[7, "2024-02-01T08:00:00Z", true]', '["007", "2024-02-01 17:00", "yes"]', '[7,"2024-02-01T08:00:00+00:00",true]']),
    ('a text, b colour, c whole', $$ 'é "q" \ ', 'light blue', 7 $$,
     ARRAY['["é \"q\" \\ ", "light blue", 7]', '["\u00e9 \"q\" \\ ","light blue","07"]']),
    ('a interval, b bytea, c int', $$ '1 day', '\x4100ff', 1 $$, ARRAY['["24 hours", "\\x4100FF", 1]', '["P1D", "A\\000\\377", "01"]']);
CREATE VIEW target AS
    SELECT 'key' || no AS name, 'id ' || type || ' PRIMARY KEY' AS columns, quote_literal(stored) AS stored, spellings FROM sample
    UNION ALL
    SELECT 'many' || no, columns || ', PRIMARY KEY (' || regexp_replace(columns, '(\w) \w+(\(\d+\))?', '\1', 'g') || ')', stored, spellings
      FROM sample_of_many;
CREATE FUNCTION each(sql text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE t record;
BEGIN
    FOR t IN SELECT * FROM target ORDER BY name LOOP
        EXECUTE replace(replace(replace(sql, '<name>', t.name), '<columns>', t.columns), '<stored>', t.stored);
    END LOOP;
END $$;
SELECT each($$ CREATE TABLE <name> (<columns>, v int) $$);
SELECT each($$ SELECT automation.watch_table('<name>') $$);
SELECT name FROM automation.define('wi', trigger => automation.on_call(), steps => ARRAY[
    automation.wait_until('state[payload.kind][payload.id].v = 1', id => 'w')]);
CREATE VIEW spelling AS SELECT name AS kind, unnest(spellings) AS id FROM target;
CREATE FUNCTION start_all() RETURNS bigint LANGUAGE sql AS $$
    SELECT count(automation.start_run('wi', jsonb_build_object('kind', kind, 'id', id))) FROM spelling $$;
-- what is shown is read from the run's payload
CREATE VIEW waits_on AS SELECT e.payload ->> 'kind' AS kind, e.payload ->> 'id' AS id, w.refs
  FROM automation.waiting AS w JOIN automation.runs AS r ON r.id = w.run_id JOIN automation.events AS e ON e.id = r.event_id;

-- the row is there when the wait begins, and its change ends it
SELECT each($$ INSERT INTO <name> VALUES (<stored>, 0) $$);
SELECT start_all();
SELECT automation.drain() > 0;
SELECT count(*) FROM automation.waiting;
-- the refs that people see are in the events' own spelling
SELECT kind, id, refs FROM waits_on ORDER BY kind COLLATE "C", id COLLATE "C";
SELECT each($$ UPDATE <name> SET v = 1 $$);
SELECT automation.drain() > 0;
SELECT 'not woken', kind, id, refs FROM waits_on ORDER BY 2, 3;
-- the row comes later
SELECT each($$ DELETE FROM <name> $$);
SELECT start_all();
SELECT automation.drain() > 0;
SELECT count(*) FROM automation.waiting;
SELECT each($$ INSERT INTO <name> VALUES (<stored>, 1) $$);
SELECT automation.drain() > 0;
SELECT 'not woken', kind, id, refs FROM waits_on ORDER BY 2, 3;
-- the row goes and comes again in another spelling of the same key
UPDATE sample SET stored = '1.5' WHERE stored = '1.50' AND type = 'numeric';
UPDATE sample SET stored = '24:00' WHERE type = 'interval';
SELECT each($$ UPDATE <name> SET v = 0 $$);
SELECT start_all();
SELECT automation.drain() > 0;
SELECT count(*) FROM automation.waiting;
SELECT each($$ DELETE FROM <name> $$);
SELECT automation.drain() >= 0;
SELECT each($$ INSERT INTO <name> VALUES (<stored>, 1) $$);
SELECT automation.drain() > 0;
SELECT 'not woken', kind, id, refs FROM waits_on ORDER BY 2, 3;

-- texts that no value of the key's type has: they wait, and say nothing
SELECT name FROM automation.define('wi-none', trigger => automation.on_call(), steps => ARRAY[
    automation.wait_until('state[payload.kind][payload.id].v = 1', timeout => '1 day', id => 'w')]);
SELECT count(automation.start_run('wi-none', payload)) FROM unnest(ARRAY[
    '{"kind": "key1", "id": "abc"}', '{"kind": "key1", "id": "70000"}', '{"kind": "key17", "id": "x"}', '{"kind": "many1", "id": "1"}',
    '{"kind": "many1", "id": "[1]"}', '{"kind": "many1", "id": "[null, 1]"}']::jsonb[]) AS payload;
SELECT automation.drain() > 0;
SELECT kind, id, refs FROM waits_on ORDER BY kind COLLATE "C", id COLLATE "C";
SELECT level, code, message FROM automation.log WHERE automation = 'wi-none';
SELECT automation.cancel_run(filter => $$ run.automation = 'wi-none' $$);
-- an entity that the condition was decided without
SELECT each($$ UPDATE <name> SET v = 0 $$);
SELECT name FROM automation.define('wi-two', trigger => automation.on_call(), steps => ARRAY[
    automation.wait_until($$ state.key1['007'].v = 1 and state.key17['A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'].v = 1 $$, id => 'w')]);
SELECT automation.start_run('wi-two') > 0;
SELECT automation.drain() > 0;
SELECT refs FROM automation.waiting;
UPDATE key1 SET v = 1;
SELECT automation.drain() > 0;
SELECT count(*) FROM automation.waiting;
UPDATE key17 SET v = 1;
SELECT automation.drain() > 0;
SELECT count(*) FROM automation.waiting;
-- a kind that is watched only later
SELECT automation.start_run('wi', '{"kind": "wi_later", "id": "007"}') > 0;
SELECT automation.drain() > 0;
CREATE TABLE later (id int PRIMARY KEY, v int);
SELECT automation.watch_table('later', kind => 'wi_later');
SELECT automation.drain() >= 0;
SELECT count(*) FROM automation.waiting;
INSERT INTO later VALUES (7, 1);
SELECT automation.drain() > 0;
SELECT count(*) FROM automation.waiting;
-- kinds without a table have texts for ids
SELECT automation.set_state('wi_text', '007', '{"v": 0}') > 0, automation.set_state('wi_text', '7', '{"v": 0}') > 0;
SELECT automation.start_run('wi', '{"kind": "wi_text", "id": "007"}') > 0;
SELECT automation.drain() > 0;
SELECT automation.set_state('wi_text', '7', '{"v": 1}') > 0;
SELECT automation.drain() >= 0;
SELECT refs FROM automation.waiting;
SELECT automation.set_state('wi_text', '007', '{"v": 1}') > 0;
SELECT automation.drain() > 0;
SELECT count(*) FROM automation.waiting;
-- how long a field has been what it is, asked by another spelling; what has been written down so far happened two hours earlier
SELECT name FROM automation.define('{"name": "wi-for", "trigger": {"on": "call"}, "steps": [{"id": "w", "do": "wait_until", "timeout": "1 day",
    "until": {"state": {"kind": "key7", "id": "1.500", "field": "v", "is": 2, "for": "1 hour"}}}]}');
CREATE PROCEDURE pass() LANGUAGE sql AS $$
    UPDATE automation_internal.field_change SET changed_at = changed_at - interval '2 hours';
    UPDATE automation_internal.tracked_field SET since = since - interval '2 hours';
    UPDATE automation_internal.entity_kind SET created_at = created_at - interval '2 hours';
$$;
CALL pass();
UPDATE key7 SET v = 2;
SELECT automation.drain() >= 0;
SELECT automation.start_run('wi-for') AS run \gset
SELECT automation.drain() > 0;
SELECT refs FROM automation.waiting;
CALL pass();
SELECT automation.start_run('wi-for') AS run \gset
SELECT automation.drain() > 0;
SELECT status FROM automation.runs WHERE id = :run;
SELECT automation.cancel_run(filter => $$ run.automation = 'wi-for' $$);

-- nothing was left to the sweep
SELECT automation.sweep() >= 0;
SELECT automation.drain() >= 0;
SELECT count(*) FROM automation.log WHERE code = 'rescued_wakeup' AND automation LIKE 'wi%';
SELECT automation.drop_automation(name) FROM automation.automations WHERE name LIKE 'wi%' ORDER BY name;
SET client_min_messages = warning;
DROP SCHEMA wait_ids CASCADE;
