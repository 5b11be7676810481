-- attack: smuggle SQL or HTTP through names
-- attacker: mallory, an author
-- must not happen: a name of a function, a header or a host is taken as more than a name
\i :attack_lib
CREATE FUNCTION public.fine(args jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT args';
\c attack mallory
CREATE FUNCTION pwn(args jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT args';
SELECT attack.refused(format('SELECT * FROM automation.define(''m-call'', trigger => automation.on_call(), steps => ARRAY[automation.call(%L)])', name), '%')
  FROM unnest(ARRAY['', ' ', 'no_such_function', 'pg_sleep', 'public.fine; DROP TABLE x', 'public."fine', '"public.fine"', 'public..fine',
                    'postgres.public.fine.x', '(SELECT 1)', 'public.fine)', '{{ new.f }}', '$1', 'set_config', 'pg_catalog.pg_read_file',
                    'automation_internal.capture_change', 'automation.drain', 'dblink', 'lo_import', repeat('f', 100)]) AS name;
-- what stands behind the name, as in a regprocedure, is not looked at: the statement is made from the function that was found
SELECT * FROM automation.define('m-fine', trigger => automation.on_call(), steps => ARRAY[automation.call('public.fine(jsonb); DROP TABLE mallory.kept', 'payload')]);
CREATE TABLE kept ();
SELECT automation.start_run('m-fine');
SELECT attack.wait_for($$ SELECT EXISTS (SELECT FROM automation.runs WHERE automation = 'm-fine' AND status IN ('failed', 'completed')) $$);
SELECT attack.held(status = 'completed' AND to_regclass('mallory.kept') IS NOT NULL, 'the function was called, nothing else') FROM automation.runs WHERE automation = 'm-fine';
SELECT attack.refused(format('SELECT automation.set_endpoint(''e'', ''https://example.com/'', headers => %L)', headers), '22%')
  FROM unnest(ARRAY['{"X-A": "a\r\nX-B: b"}', '{"X-A": "a\nb"}', '{"X-A\r\nX-B": "b"}', '{"X A": "b"}', '{"": "b"}', '{"X:": "b"}', '{"Host": "evil"}',
                    '{"Content-Length": "0"}', '{"Transfer-Encoding": "chunked"}', '{"webhook-signature": "forged"}', '{"X-A": "a\u0000b"}']) AS headers;
SELECT attack.refused(format('SELECT * FROM automation.define(''m-head'', trigger => automation.on_call(), steps => ARRAY[automation.webhook(%L)])', url), '%')
  FROM unnest(ARRAY['https://{{ new.host }}/', 'https://example.com:{{ new.port }}/', '{{ new.scheme }}://example.com/', 'https://{{ new.user }}@example.com/',
                    'https://example.com\evil', 'https://exam ple.com/', 'javascript:alert(1)', 'https://']) AS url;
-- a value that would break the header is refused when it is known
SELECT automation.define('m-late', trigger => automation.on_event('m.late'), breaker => 0, steps => ARRAY[
    automation.webhook('https://example.com/', headers => '{"X-A": "{{ payload.v }}"}', id => 'send')]);
SELECT automation.emit('m.late', jsonb_build_object('v', E'a\r\nX-Forged: yes'));
SELECT attack.wait_for($$ SELECT EXISTS (SELECT FROM automation.runs WHERE automation = 'm-late' AND status IN ('failed', 'completed')) $$);
SELECT attack.held(status = 'failed', 'the run failed: ' || error) FROM automation.runs WHERE automation = 'm-late';
SELECT attack.held(count(*) = 0, 'nothing was ordered') FROM automation.deliveries;
