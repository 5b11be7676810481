-- Steps that cannot work are refused when they are defined, with the place in the user's own text; the surface is commented.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv dir PG_ABS_SRCDIR
\set show :dir '/check/show.sql'
\set check :dir '/check/waits.sql'
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
CREATE SCHEMA refused;
SET search_path = refused, public;
\i :show
\pset format aligned
\pset tuples_only off
CREATE TABLE item (id int PRIMARY KEY, status text);
SELECT automation.watch_table('item', kind => 'y_item');
-- every problem of a document, in nested steps as well: the path, line and column in the text that stands there
SELECT path, line, col, sqlstate, message, hint FROM automation.validate($$ {"name": "y", "trigger": {"on": "call"}, "steps": [
  {"do": "sql", "sql": "SELECT 1"},
  {"do": "sql", "sql": "SELECT 1"},
  {"do": "parallel", "lanes": [
    {"do": "wait_until", "until": "true and\n  state.y_item['1'].status = = 1"},
    {"do": "sequence", "steps": [
      {"do": "choose", "whens": [{"when": "state.y_itme[1].status = 'x'", "steps": [{"do": "delay", "until": "payload.at +"}]}],
       "otherwise": [{"do": "wait_until", "until": "state.y_item[1].statsu = 'x'"}, {"do": "sql", "sql": "SELEC 1"}]}]}]}],
  "on_failure": [{"do": "repeat_while", "while": "1", "steps": [{"do": "wait_until", "until": "state.nothing_like_it[1].x = 1"}]}]} $$);
-- and at the psql prompt a caret
SELECT automation.define('y', trigger => automation.on_call(), steps => ARRAY[automation.parallel(ARRAY[automation.delay('1 h'), automation.sequence(ARRAY[automation.wait_until($$ state.y_item[payload.id].statsu = 'ok' $$)])])]);
SELECT automation.define('y', trigger => automation.on_call(), steps => ARRAY[automation.wait_until($$ state.unwatched[1].status = 'ok' $$)]);
SELECT automation.define('y', trigger => automation.on_call(), steps => ARRAY[automation.delay(until => 'payload.at +')]);
SELECT automation.define('y', trigger => automation.on_call(), steps => ARRAY[automation.delay(until => 'tomorow')]);
\pset format unaligned
\pset tuples_only
-- one step at a time: what is wrong with it
CREATE FUNCTION refused(step jsonb) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(path || ': ' || message || coalesce(' HINT ' || hint, ''), E'\n' ORDER BY path), 'nothing')
      FROM automation.validate(jsonb_build_object('name', 'y', 'trigger', '{"on": "call"}'::jsonb, 'steps', jsonb_build_array(step))) $$;
-- durations
SELECT refused(s) FROM unnest(ARRAY[automation.delay('170000000 years'), automation.delay('-1 hour'), automation.delay(), automation.delay('1 hour', until => '2030-01-01'), automation.delay(until => '2030-13-01'), automation.delay(until => 'infinity'), automation.delay('0')]) AS s;
SELECT refused(('{"do": "delay", "for": ' || f || '}')::jsonb) FROM unnest(ARRAY['"infinity"', '"P1000000000Y"', '{"duration": 3, "unit": "fortnights"}', '{"duration": -3, "unit": "days"}', '{"duration": 3}', '[]', '"15 minutes"', '{"duration": 3, "unit": "weeks"}', '5']) AS f;
SELECT refused(s) FROM unnest(ARRAY[automation.wait_signal('x', timeout => '-1 s'), automation.wait_signal('x', timeout => '0'), automation.wait_until('false', timeout => '170000000 years'), automation.sql('SELECT 1', timeout => '170000000 years'), automation.sql('SELECT 1', timeout => '30 days'), automation.wait_for_event('a.b', lookback => '-1 s')]) AS s;
SELECT path, message, hint FROM automation.validate('{"name": "y", "trigger": {"on": "call"}, "timeout": "-1 hour", "steps": [{"do": "stop"}]}');
-- branches and blocks
SELECT refused(s) FROM unnest(ARRAY[automation.branch('true', yes => 'nowhere'), automation.branch('1', yes => NULL), automation.branch(NULL), automation.parallel('{}'), automation.parallel(NULL), automation.sequence(NULL), automation.sequence(ARRAY[NULL::automation.step]), automation.choose('{}'::jsonb), automation.choose(ARRAY[automation.when_holds('', NULL)]), automation.require('payload'), automation.stop('done')]) AS s;
SELECT path, message, hint FROM automation.validate(jsonb_build_object('name', 'y', 'trigger', '{"on": "call"}'::jsonb, 'steps', ARRAY[automation.branch('true', yes => 'in_a_lane', no => 'too_late', id => 'b'), automation.parallel(ARRAY[automation.sql('SELECT 1', id => 'in_a_lane'), automation.branch('true', yes => 'b', id => 'out_of_it')])], 'on_failure', ARRAY[automation.sql('SELECT 1', id => 'too_late')]));
SELECT path, message FROM automation.validate(jsonb_build_object('name', 'y', 'trigger', '{"on": "call"}'::jsonb, 'steps', ARRAY[automation.parallel(ARRAY[automation.sql('SELECT 1', id => 'same'), automation.sql('SELECT 2', id => 'same')])]));
-- nested 16 deep is enough
CREATE FUNCTION nested(depth int) RETURNS automation.step LANGUAGE sql AS $$ SELECT CASE WHEN depth = 0 THEN automation.sql('SELECT 1') ELSE automation.sequence(ARRAY[nested(depth - 1)]) END $$;
SELECT refused(nested(16));
SELECT refused(nested(17));
-- loops
SELECT refused(s) FROM unnest(ARRAY[automation.repeat_count(-1, ARRAY[automation.stop()]), automation.repeat_count(10001, ARRAY[automation.stop()]), automation.repeat_count(10000, ARRAY[automation.stop()]), automation.repeat_count('1 +', ARRAY[automation.stop()]), automation.repeat_count(NULL::int, NULL), automation.for_each('', ARRAY[automation.stop()]), automation.repeat_while('"yes"', ARRAY[automation.stop()])]) AS s;
-- events and signals
SELECT refused(s) FROM unnest(ARRAY[automation.wait_for_event(''), automation.wait_for_event('a..b'), automation.wait_for_event(NULL), automation.wait_signal(''), automation.wait_signal(NULL), automation.wait_signal(repeat('x', 1001)), automation.wait_signal('x', key => repeat('x', 1001)), automation.wait_signal('{{ payload.x'), automation.wait_until(''), automation.wait_until(NULL), automation.wait_until('1 + 1')]) AS s;
-- variables, sub-automations, retries
SELECT refused(s) FROM unnest(ARRAY[automation.set('[1]'), automation.set('{"a": "{{ nothing.x }}"}'), automation.set(NULL), automation.run(NULL), automation.run('x', '{'), automation.store_state('', '', ''), automation.call('no_such_function'),
    automation.sql('SELECT {{ run.idd }}'), automation.sql('SELECT 1', retry => automation.retry(0)), automation.sql('SELECT 1', retry => automation.retry(1001)), automation.sql('SELECT 1', retry => automation.retry(delays => '{-1 s}')), automation.sql('SELECT 1', retry => automation.retry(backoff => 'linear')),
    automation.sql('SELECT 1', retry => automation.retry(backoff => 'exponential', factor => 'NaN')), automation.sql('SELECT 1', retry => automation.retry(backoff => 'exponential', jitter => 2)), automation.sql('SELECT 1', retry => '"often"'), automation.sql('SELECT 1', retry => '{"tries": 3}')]) AS s;
SELECT refused(s::jsonb) FROM unnest(ARRAY['{"do": "delay", "for": "1 s", "retry": 3}', '{"do": "branch", "if": "true", "timeout": "1 s"}', '{"do": "delay", "for": "1 s", "until": "x", "sql": "SELECT 1"}', '{"do": "wait_unitl", "until": "true"}', '{"do": "wait_until", "until": "true", "continue_on_timeout": "yes"}', '{"do": 7}', '{}', '7']) AS s;
SELECT path, message, hint FROM automation.validate('{"name": "y", "trigger": {"on": "call"}, "on_pause": "stop", "max_steps": 0, "steps": [{"do": "stop"}]}');
SELECT path, message FROM automation.validate(jsonb_build_object('name', 'y', 'trigger', '{"on": "call"}'::jsonb, 'steps', (SELECT jsonb_agg(automation.sql('SELECT 1')) FROM generate_series(1, 10000))));
-- none of them was saved
SELECT count(*) FROM automation.automations WHERE name = 'y';

-- every function, view and column of the surface says what it is for
SELECT p.oid::regprocedure FROM pg_proc AS p WHERE p.pronamespace = 'automation'::regnamespace AND obj_description(p.oid, 'pg_proc') IS NULL;
SELECT c.relname, a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
 WHERE c.relnamespace = 'automation'::regnamespace AND c.relkind = 'v' AND (obj_description(c.oid, 'pg_class') IS NULL OR col_description(c.oid, a.attnum) IS NULL);
-- and every function of it belongs to a tier
CREATE ROLE regress_y_admin;
SELECT automation.grant_usage('regress_y_admin', 'admin');
SELECT p.oid::regprocedure FROM pg_proc AS p WHERE p.pronamespace = 'automation'::regnamespace AND NOT has_function_privilege('regress_y_admin', p.oid, 'EXECUTE');
SELECT c.oid::regclass FROM pg_class AS c WHERE c.relnamespace = 'automation'::regnamespace AND c.relkind = 'v' AND NOT has_table_privilege('regress_y_admin', c.oid, 'SELECT');
SELECT automation.revoke_usage('regress_y_admin');
DROP ROLE regress_y_admin;
SELECT automation.unwatch_table('item');
SET client_min_messages = warning;
DROP SCHEMA refused CASCADE;
