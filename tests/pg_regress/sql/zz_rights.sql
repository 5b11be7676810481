-- docs/rights.md is true: every view shows rows of an owner to the roles that the page says and to no others; every function
-- can be called by the tiers that the page says; every function that takes something of another role's by its name or number
-- refuses, or answers as if it were not there, and leaves it as it is. Views and functions come from the catalog, so that a new
-- one that the page does not have, or that is not called here, shows in the output.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
\getenv srcdir PG_ABS_SRCDIR
\set page :srcdir '/docs/rights.md'
CREATE SCHEMA rights;
CREATE TABLE rights.line (no serial, text text);
\set load '\\copy rights.line (text) FROM ' :'page' ' WITH (FORMAT csv, DELIMITER E''\\x02'', QUOTE E''\\x01'')'
:load
-- the rows of the page's tables that begin with a word in backquotes or a tier
CREATE FUNCTION rights.listed(heading text) RETURNS TABLE (label text, words text[], rest text) LANGUAGE sql AS $$
    SELECT trim(both ' `' FROM split_part(l.text, '|', 2)), ARRAY(SELECT m[1] FROM regexp_matches(split_part(l.text, '|', 3), '`([a-z_]+)`', 'g') AS m), trim(split_part(l.text, '|', 3))
      FROM rights.line AS l
     WHERE l.text ~ '^\| ' AND l.text !~ '^\| ?-'
       AND l.no > (SELECT no FROM rights.line WHERE text = '## ' || heading)
       AND l.no < coalesce((SELECT min(n.no) FROM rights.line AS n WHERE n.text LIKE '## %' AND n.no > (SELECT no FROM rights.line WHERE text = '## ' || heading)), 100000)
$$;

CREATE ROLE regress_m_a LOGIN;
CREATE ROLE regress_m_member LOGIN IN ROLE regress_m_a;
CREATE ROLE regress_m_nobody LOGIN;
CREATE ROLE regress_m_viewer LOGIN;
CREATE ROLE regress_m_operator LOGIN;
CREATE ROLE regress_m_author LOGIN;
CREATE ROLE regress_m_admin LOGIN;
SELECT count(automation.grant_usage('regress_m_' || r, t)) FROM (VALUES ('a', 'author'), ('member', 'viewer'), ('viewer', 'viewer'), ('operator', 'operator'), ('author', 'author'), ('admin', 'admin')) AS v (r, t);
GRANT USAGE ON SCHEMA rights TO PUBLIC;
GRANT CREATE ON SCHEMA rights TO regress_m_a;

\echo == tiers
-- functions of the catalog that no tier has, and words of the page that are no function
SELECT 'not on the page: ' || p.proname FROM pg_proc AS p WHERE p.pronamespace = 'automation'::regnamespace
   AND p.proname <> ALL (SELECT unnest(words) FROM rights.listed('Tiers')) GROUP BY p.proname ORDER BY 1;
SELECT 'not in the catalog: ' || w FROM rights.listed('Tiers'), unnest(words) AS w
 WHERE NOT EXISTS (SELECT FROM pg_proc AS p WHERE p.pronamespace = 'automation'::regnamespace AND p.proname = w) ORDER BY 1;
SELECT 'twice on the page: ' || w FROM rights.listed('Tiers'), unnest(words) AS w GROUP BY w HAVING count(*) > 1 ORDER BY 1;
-- EXECUTE as the page says: each tier has what the ones before it have
CREATE TABLE rights.tier AS SELECT label, words, row_number() OVER () AS rank FROM rights.listed('Tiers') WHERE label <> 'tier';
SELECT label, cardinality(words) > 0 AS some FROM rights.tier ORDER BY rank;
WITH held AS (
    SELECT p.oid::regprocedure AS function, t.label AS tier, has_function_privilege('regress_m_' || t.label, p.oid, 'EXECUTE') AS has,
           EXISTS (SELECT FROM rights.tier AS u WHERE u.rank <= t.rank AND p.proname = ANY (u.words)) AS should
      FROM pg_proc AS p, (SELECT label, rank FROM rights.tier UNION ALL SELECT 'nobody', 0) AS t
     WHERE p.pronamespace = 'automation'::regnamespace)
SELECT tier, count(*) FILTER (WHERE has) > 0 AS some, count(*) FILTER (WHERE has <> should) AS wrong FROM held GROUP BY tier ORDER BY 2, 1;
SELECT 'an internal function for ' || r || ': ' || p.proname FROM pg_proc AS p, unnest(ARRAY['regress_m_nobody', 'regress_m_viewer', 'regress_m_operator']) AS r
 WHERE p.pronamespace = 'automation_internal'::regnamespace AND has_function_privilege(r, p.oid, 'EXECUTE') AND p.proname NOT IN ('worker_list', 'running', 'capture_change');
SELECT 'may use the internal schema: ' || r FROM unnest(ARRAY['a', 'nobody', 'viewer', 'operator', 'author', 'admin']) AS r WHERE has_schema_privilege('regress_m_' || r, 'automation_internal', 'USAGE');

\echo == something of regress_m_a in every view
SET ROLE regress_m_a;
CREATE TABLE rights.m_item (id int PRIMARY KEY, v text);
SELECT automation.watch_table('rights.m_item');
SELECT automation.derive_event('m_item', 'm.derived', $$ new.v <> '' $$), automation.subscribe('m.#', 'm_channel');
SELECT automation.set_endpoint('m-end', 'https://m.example/');
SELECT status FROM automation.define('m-main', trigger => automation.on_changed('m_item'), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT status FROM automation.define('m-hook', trigger => automation.on_event('m.topic'), steps => ARRAY[automation.webhook('m-end')]);
SELECT status FROM automation.define('m-wait', trigger => automation.on_call(), steps => ARRAY[automation.wait_signal('m.signal', timeout => '1 day')]);
SELECT status FROM automation.define('m-fail', trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1/0')]);
SELECT status FROM automation.define('m-cron', trigger => automation.on_cron('0 0 1 1 *', id => 'yearly'), steps => ARRAY[automation.sql('SELECT 1')]);
INSERT INTO rights.m_item VALUES (1, 'x');
SELECT automation.set_state('m_kind', '1', '{"a": 1}') > 0 AS set, automation.emit('m.topic', tenant => 'm-tenant') > 0 AS emitted;
SELECT automation.grant_topic('regress_m_member', 'm', 'listen');
SELECT automation.start_run('m-wait') AS waiting, automation.start_run('m-fail') AS failed \gset
SELECT automation.backfill('m-main', 'SELECT id, v FROM rights.m_item') AS job, automation.backfill('m-main', 'SELECT id, v FROM rights.m_item', approve => true) AS unapproved \gset
SELECT automation.drain() > 0 AS ran;
SELECT automation.start_run('m-main') AS queued \gset
SELECT ok FROM automation.pause('m-main', tenant => 'm-tenant');
RESET ROLE;
SELECT automation.route() >= 0 AS routed, automation.allow_egress('regress_m_a', 'm.example') AS allowed;
INSERT INTO automation_internal.secret (owner, owner_name, name, sealed, created_at) VALUES ('regress_m_a'::regrole, 'regress_m_a', 'm-secret', '\x00', now());
INSERT INTO automation_internal.dead_letter (at, owner, reason, run_id) VALUES (now(), 'regress_m_a'::regrole, 'test', :failed) RETURNING id AS letter \gset
INSERT INTO automation_internal.log (level, code, owner, message) VALUES ('info', 'test', 'regress_m_a'::regrole, 'test');
INSERT INTO automation_internal.tick SELECT id, now(), 'missed', NULL, NULL, false, 1, '', now() FROM automation_internal.schedule WHERE trigger_id = 'yearly';
INSERT INTO automation_internal.gate_refusal SELECT id, 0, 'no_rights', 1, now() FROM automation_internal.automation WHERE name = 'm-main';
UPDATE automation_internal.outbox SET next_at = 'infinity' WHERE owner = 'regress_m_a'::regrole;
SELECT id AS message FROM automation_internal.outbox WHERE owner = 'regress_m_a'::regrole \gset

\echo == views
SELECT 'not on the page: ' || c.relname FROM pg_class AS c WHERE c.relnamespace = 'automation'::regnamespace AND c.relkind <> 'c'
   AND c.relname <> ALL (SELECT label FROM rights.listed('Views')) ORDER BY 1;
SELECT 'not in the catalog: ' || label FROM rights.listed('Views') WHERE label <> 'view'
   AND NOT EXISTS (SELECT FROM pg_class AS c WHERE c.relnamespace = 'automation'::regnamespace AND c.relname = label) ORDER BY 1;
SELECT 'no security barrier: ' || c.relname FROM pg_class AS c WHERE c.relnamespace = 'automation'::regnamespace AND c.relkind = 'v'
   AND NOT coalesce('security_barrier=true' = ANY (c.reloptions), false) ORDER BY 1;
SELECT 'no clause about the owner: ' || c.relname FROM pg_class AS c JOIN rights.listed('Views') AS l ON l.label = c.relname WHERE c.relnamespace = 'automation'::regnamespace AND l.rest <> 'all'
   AND pg_get_viewdef(c.oid) !~ 'pg_has_role\(' ORDER BY 1;
SELECT 'more than SELECT: ' || c.relname || ' ' || a.privilege_type FROM pg_class AS c, aclexplode(c.relacl) AS a WHERE c.relnamespace = 'automation'::regnamespace AND a.grantee <> c.relowner AND a.privilege_type <> 'SELECT';
-- how many rows a role sees: -1 if it may not look
CREATE FUNCTION rights.seen(who text, view_name name) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE n bigint;
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', 'regress_m_' || who);
    EXECUTE format('SELECT count(*) FROM automation.%I', view_name) INTO n;
    RESET ROLE;
    RETURN n;
EXCEPTION WHEN insufficient_privilege THEN
    RETURN -1;
END $$;
-- the page says owner or table: the owner and its members alone (for table, see below); all: every tier
WITH seen AS (
    SELECT l.label, l.rest, r.who, rights.seen(r.who, l.label::name) AS n
      FROM rights.listed('Views') AS l, unnest(ARRAY['a', 'member', 'nobody', 'viewer', 'operator', 'author', 'admin']) AS r (who) WHERE l.label <> 'view')
SELECT label, CASE WHEN min(n) FILTER (WHERE who IN ('a', 'member')) > 0 AND max(n) FILTER (WHERE who = 'nobody') = -1
            AND CASE rest WHEN 'all' THEN min(n) FILTER (WHERE who IN ('viewer', 'operator', 'author', 'admin')) > 0
                          ELSE max(n) FILTER (WHERE who IN ('viewer', 'operator', 'author', 'admin')) = 0 END THEN 'as the page says: ' || rest
            ELSE 'NOT as the page says: ' || string_agg(who || ' ' || n, ', ') END
  FROM seen GROUP BY label, rest ORDER BY label;
-- a reader of the table sees its changes and what is derived from them, and nothing else
GRANT SELECT ON rights.m_item TO regress_m_viewer;
SELECT v.relname, rights.seen('viewer', v.relname) FROM pg_class AS v WHERE v.relnamespace = 'automation'::regnamespace AND v.relkind = 'v' AND v.relname <> 'stat_workers' AND rights.seen('viewer', v.relname) > 0 ORDER BY 1;
SET ROLE regress_m_viewer;
SELECT kind, op FROM automation.events;
RESET ROLE;
REVOKE SELECT ON rights.m_item FROM regress_m_viewer;

\echo == calls about things of regress_m_a
CREATE TABLE rights.call (no serial, function text, statement text);
INSERT INTO rights.call (function, statement) VALUES
    ('document', $$ automation.document('m-main') $$), ('versions', $$ automation.versions('m-main') $$),
    ('timeline', format($$ automation.timeline(%s) $$, :failed)), ('state', $$ automation.state('m_item', '1') $$),
    ('status', $$ detail FROM automation.status() WHERE item LIKE 'kind m%' $$),
    ('validate', $$ string_agg(sqlstate, ' ') FROM automation.validate('{"name": "v", "trigger": {"on": "changed", "kind": "m_item"}, "steps": [{"do": "webhook", "endpoint": "m-end"}, {"do": "webhook", "url": "https://m.example", "secret": "m-secret"}]}') $$),
    ('start_run', $$ automation.start_run('m-main') $$), ('start_with_event', $$ automation.start_with_event('m-main', '{"topic": "m.x"}') $$),
    ('backfill', $$ automation.backfill('m-main', 'SELECT 1 AS id') $$),
    ('approve_bulk', format($$ automation.approve_bulk(%s) $$, :unapproved)), ('cancel_bulk', format($$ automation.cancel_bulk(%s) $$, :unapproved)), ('cancel_bulk', format($$ automation.cancel_bulk(%s) $$, :job)),
    ('cancel_run', format($$ automation.cancel_run(%s) $$, :waiting)), ('cancel_run', format($$ automation.cancel_run(%s) $$, :queued)), ('cancel_run', format($$ automation.cancel_run(%s) $$, :failed)), ('cancel_run', $$ automation.cancel_run('true') $$),
    ('retry_run', format($$ automation.retry_run(%s) $$, :failed)), ('skip_step', format($$ automation.skip_step(%s) $$, :waiting)), ('skip_step', format($$ automation.skip_step(%s) $$, :failed)),
    ('signal', $$ automation.signal('m.signal') > 0 $$), ('redrive', format($$ automation.redrive(%s) $$, :letter)), ('redeliver', format($$ automation.redeliver(%s) $$, :message)),
    ('activate', $$ reason FROM automation.activate('m-main') $$), ('pause', $$ reason FROM automation.pause('m-main') $$), ('resume', $$ reason FROM automation.resume('m-main') $$),
    ('revert_to_draft', $$ reason FROM automation.revert_to_draft('m-main') $$), ('drop_automation', $$ automation.drop_automation('m-main') $$),
    ('define', $$ automation.define('m-main', trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]) $$),
    ('define', $$ automation.define('m-new', run_as => 'regress_m_a', trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]) $$),
    ('define', $$ automation.define('m-new', trigger => automation.on_changed('m_item'), steps => ARRAY[automation.sql('SELECT 1')]) $$),
    ('watch_table', $$ automation.watch_table('rights.m_item') $$), ('watch_table', $$ automation.watch_table('rights.m_item', kind => 'stolen') $$), ('unwatch_table', $$ automation.unwatch_table('rights.m_item') $$),
    ('derive_event', $$ automation.derive_event('m_item', 'm.derived', 'false') $$), ('drop_derived_event', $$ automation.drop_derived_event('m_item', 'm.derived') $$),
    ('unsubscribe', $$ automation.unsubscribe('m.#', 'm_channel') $$),
    ('grant_topic', $$ automation.grant_topic('regress_m_author', 'm', 'emit', of => 'regress_m_a') $$), ('revoke_topic', $$ automation.revoke_topic('regress_m_member', 'm', 'listen', of => 'regress_m_a') $$),
    ('state', $$ automation.state('m_kind', '1') $$), ('set_state', $$ automation.set_state('m_kind', '1', '{"a": 2}') $$), ('patch_state', $$ automation.patch_state('m_kind', '1', '{"a": 2}') $$), ('remove_state', $$ automation.remove_state('m_kind', '1') $$),
    ('set_secret', $$ automation.set_secret('m-secret', 'x', owner => 'regress_m_a') $$), ('set_secret_from_file', $$ automation.set_secret_from_file('m-secret', 'postgresql.conf', owner => 'regress_m_a') $$), ('drop_secret', $$ automation.drop_secret('m-secret', owner => 'regress_m_a') $$), ('drop_secret', $$ automation.drop_secret('m-secret') $$),
    ('set_endpoint', $$ automation.set_endpoint('m-end', 'https://b.example/', owner => 'regress_m_a') $$), ('drop_endpoint', $$ automation.drop_endpoint('m-end', owner => 'regress_m_a') $$), ('drop_endpoint', $$ automation.drop_endpoint('m-end') $$),
    ('dispatch', $$ automation.dispatch() $$), ('drain', $$ automation.drain() $$),
    ('sweep', $$ automation.sweep() $$), ('start_workers', $$ automation.start_workers() $$), ('stop_workers', $$ automation.stop_workers() $$),
    ('grant_usage', $$ automation.grant_usage('regress_m_nobody', 'admin') $$), ('revoke_usage', $$ automation.revoke_usage('regress_m_a') $$);
-- every function is called, builds a part of a document, or is on the page among those that take nothing of another role's
SELECT 'not called: ' || p.proname FROM pg_proc AS p
 WHERE p.pronamespace = 'automation'::regnamespace AND p.proname <> ALL (SELECT function FROM rights.call)
   AND p.proname <> ALL (SELECT unnest(words) FROM rights.listed('Functions that take nothing of another role''s')) GROUP BY p.proname ORDER BY 1;
CREATE FUNCTION rights.answer(who text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE answer text;
BEGIN
    EXECUTE format('SET LOCAL ROLE %I', 'regress_m_' || who);
    EXECUTE 'SELECT ' || statement INTO answer;
    RESET ROLE;
    RETURN coalesce(answer, 'nothing');
EXCEPTION WHEN OTHERS THEN
    RETURN sqlstate;
END $$;
-- all that the engine keeps of regress_m_a: tables with an owner, and tables about its automations. Of the queue and the timers only
-- runs to be started and deadlines: a signal makes the engine look at every run that waits for its name, whoever sent it.
CREATE FUNCTION rights.kept() RETURNS TABLE (relation name, rows bigint, digest text) LANGUAGE plpgsql AS $$
DECLARE clause text;
BEGIN
    FOR relation, clause IN
        SELECT c.relname, CASE c.relname WHEN 'dispatch' THEN 't.reason IN (''t'', ''m'') AND ' WHEN 'timer' THEN 't.reason = ''d'' AND ' ELSE '' END || '(' || string_agg(CASE a.attname WHEN 'automation_id' THEN 't.automation_id IN (SELECT id FROM automation_internal.automation WHERE owner = ''regress_m_a''::regrole)'
                                                    ELSE format('t.%I = ''regress_m_a''::regrole', a.attname) END, ' OR ') || ')'
          FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
         WHERE c.relnamespace = 'automation_internal'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname NOT IN ('stat', 'stat_step', 'stat_tenant')
           AND (a.attname = 'automation_id' OR (a.atttypid = 'oid'::regtype AND a.attname IN ('owner', 'role', 'created_by', 'sender')))
         GROUP BY c.relname
    LOOP
        EXECUTE format('SELECT count(*), md5(coalesce(string_agg(t::text, %L ORDER BY t::text), %L)) FROM automation_internal.%I AS t WHERE %s', ';', '', relation, clause) INTO rows, digest;
        RETURN NEXT;
    END LOOP;
END $$;
CREATE TABLE rights.before AS SELECT * FROM rights.kept();
SELECT relation || ' ' || (rows > 0) FROM rights.before WHERE rows > 0 ORDER BY relation;
WITH answers AS MATERIALIZED (
    SELECT c.no, c.function, r.ordinality, r.who, replace(rights.answer(r.who, c.statement), E'\n', ' ') AS answer
      FROM rights.call AS c, unnest(ARRAY['nobody', 'viewer', 'operator', 'author', 'admin']) WITH ORDINALITY AS r (who) ORDER BY c.no, r.ordinality),
grouped AS (SELECT no, function, answer, min(ordinality) AS place, string_agg(who, ' ' ORDER BY ordinality) AS roles FROM answers GROUP BY no, function, answer)
SELECT function || ': ' || string_agg(roles || ' = ' || answer, ', ' ORDER BY place) FROM grouped GROUP BY no, function ORDER BY no;
-- unchanged
SELECT 'changed: ' || b.relation FROM rights.before AS b JOIN rights.kept() AS n USING (relation) WHERE (b.rows, b.digest) <> (n.rows, n.digest) ORDER BY 1;
-- the run that waits for the signal has not taken it from a stranger
SELECT automation.drain() > 0 AS drained;
SELECT status, waiting_for FROM automation.runs WHERE automation = 'm-wait';
-- and the owner's own calls do what the others' did not
SELECT rights.answer('a', $$ (automation.document('m-main')) ->> 'name' $$), rights.answer('a', format($$ automation.cancel_run(%s) $$, :waiting)), rights.answer('a', format($$ automation.retry_run(%s) > 0 $$, :failed)),
       rights.answer('a', $$ ok FROM automation.pause('m-main') $$), rights.answer('a', $$ automation.unsubscribe('m.#', 'm_channel') $$);
-- a refusal that is no error holds no lock on the automation that it was about
BEGIN;
SET LOCAL ROLE regress_m_operator;
SELECT reason FROM automation.pause('m-main');
RESET ROLE;
SELECT count(*) FROM (SELECT FROM automation_internal.automation WHERE name = 'm-main' AND xmax <> 0 AND pg_xact_status(xmax::text::xid8) = 'in progress') AS locked;
ROLLBACK;

SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'm-%';
SELECT automation.drain() >= 0 AS drained, automation.unwatch_table('rights.m_item');
DELETE FROM automation_internal.secret WHERE owner = 'regress_m_a'::regrole;
DELETE FROM automation_internal.endpoint WHERE owner = 'regress_m_a'::regrole;
DELETE FROM automation_internal.outbox WHERE owner = 'regress_m_a'::regrole;
DELETE FROM automation_internal.dead_letter WHERE owner = 'regress_m_a'::regrole;
DELETE FROM automation_internal.signal WHERE name = 'm.signal';
DELETE FROM automation_internal.entity_kind WHERE kind = 'm_kind';
DELETE FROM automation_internal.topic_grant WHERE of_role = 'regress_m_a'::regrole;
SELECT automation.deny_egress('regress_m_a', 'm.example');
DROP SCHEMA rights CASCADE;
SELECT count(automation.revoke_usage(r.rolname)) FROM pg_roles AS r WHERE r.rolname LIKE 'regress_m_%';
DROP OWNED BY regress_m_a, regress_m_member, regress_m_nobody, regress_m_viewer, regress_m_operator, regress_m_author, regress_m_admin;
DROP ROLE regress_m_a, regress_m_member, regress_m_nobody, regress_m_viewer, regress_m_operator, regress_m_author, regress_m_admin;
