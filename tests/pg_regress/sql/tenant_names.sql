-- Names of automations are unique within a tenant, and among the automations without one (R004-16: each organisation
-- has rules of its own). A bare name that means several is refused, with the call to type; a run means its own tenant's.
\set SHOW_CONTEXT never
\pset format unaligned
\pset tuples_only
\getenv srcdir PG_ABS_SRCDIR
\set show :srcdir '/check/show.sql'
CREATE SCHEMA tn;
SET search_path = tn, public;
\i :show
CREATE TABLE effect (seq serial, what text);
CREATE FUNCTION happened() RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM automation.drain();
    RETURN QUERY SELECT what FROM tn.effect ORDER BY what;
    DELETE FROM tn.effect;
END $$;
CREATE FUNCTION says(word text) RETURNS automation.step LANGUAGE sql AS
$$ SELECT automation.sql('INSERT INTO tn.effect (what) VALUES ({{ ''' || word || ' for '' + (event.tenant | default(''nobody'')) }})') $$;

-- one definition does not replace another tenant's
SELECT name, version, status FROM automation.define('tn-hi', trigger => automation.on_event('tn.go'), tenant => 'a', steps => ARRAY[says('a')]);
SELECT name, version, status FROM automation.define('tn-hi', trigger => automation.on_event('tn.go'), tenant => 'b', steps => ARRAY[says('b')]);
SELECT name, tenant, version FROM automation.automations WHERE name LIKE 'tn-%';
SELECT count(automation.emit('tn.go', tenant => t)) FROM unnest('{a,b}'::text[]) AS t;
SELECT happened();
SELECT name, version FROM automation.define('tn-hi', trigger => automation.on_event('tn.go'), tenant => 'b', steps => ARRAY[says('b again')]);
SELECT version, document -> 'tenant' FROM automation.versions('tn-hi', tenant => 'b');

-- a bare name that means several
SELECT tried($$ SELECT automation.pause('tn-hi') $$);
SELECT tried($$ SELECT automation.activate('tn-hi') $$);
SELECT tried($$ SELECT automation.resume('tn-hi') $$);
SELECT tried($$ SELECT automation.revert_to_draft('tn-hi') $$);
SELECT tried($$ SELECT automation.drop_automation('tn-hi') $$);
SELECT tried($$ SELECT automation.start_run('tn-hi') $$);
SELECT tried($$ SELECT automation.start_with_event('tn-hi', '{}') $$);
SELECT tried($$ SELECT automation.versions('tn-hi') $$);
SELECT tried($$ SELECT automation.document('tn-hi') $$);
SELECT tried($$ SELECT automation.backfill('tn-hi', 'SELECT 1') $$);
-- a name that a tenant does not have, and one that no tenant has
SELECT tried($$ SELECT automation.document('tn-hi', tenant => 'c') $$);
SELECT tried($$ SELECT automation.document('tn-hi', tenant => '') $$);
SELECT tried($$ SELECT automation.document('tn-none', tenant => 'a') $$);
SELECT ok, reason FROM automation.pause('tn-hi', tenant => 'c');

-- with the tenant named, each is its own
SELECT ok, applied FROM automation.pause('tn-hi', tenant => 'a');
SELECT tenant, status FROM automation.automations WHERE name = 'tn-hi';
SELECT tried($$ SELECT automation.start_run('tn-hi', tenant => 'a') $$);
SELECT automation.start_run('tn-hi', tenant => 'b') > 0;
SELECT happened();
SELECT automation.start_with_event('tn-hi', '{"payload": {}}', tenant => 'b') > 0;
SELECT happened();
SELECT tried($$ SELECT automation.start_with_event('tn-hi', '{"tenant": "a"}', tenant => 'b') $$);
SELECT automation.backfill('tn-hi', 'SELECT 1 AS n', tenant => 'b') > 0;
SELECT happened();
SELECT ok, applied FROM automation.resume('tn-hi', tenant => 'a');
SELECT action, automation, tenant FROM automation.audit_log WHERE automation = 'tn-hi' ORDER BY at;
SELECT topic, entity_id, tenant FROM automation.events WHERE topic IN ('automation.paused', 'automation.activated') AND entity_id LIKE 'tn-%' ORDER BY id;
SELECT automation, tenant, entered FROM automation.stat_automations WHERE automation = 'tn-hi';
SELECT automation, tenant, completed FROM automation.stat_steps WHERE automation = 'tn-hi';

-- the one without a tenant is a third; its name alone is not enough then, the empty text is
SELECT name, version FROM automation.define('tn-hi', trigger => automation.on_event('tn.go'), steps => ARRAY[says('all')]);
SELECT tried($$ SELECT automation.pause('tn-hi') $$);
SELECT automation.document('tn-hi', tenant => '') ? 'tenant';
SELECT count(automation.emit('tn.go', tenant => t)) FROM unnest('{a,c}'::text[]) AS t;
SELECT happened();
-- it can be started for a tenant that has none of its own
SELECT automation.start_run('tn-hi', tenant => 'c') > 0;
SELECT automation.start_with_event('tn-hi', '{}', tenant => 'c') > 0;
SELECT happened();
SELECT tried($$ SELECT automation.start_run('tn-hi', tenant => '_c') $$);

-- run steps: the run's own tenant first, then the one without a tenant
SELECT name, notices FROM automation.define('tn-calls', trigger => automation.on_event('tn.call'), steps => ARRAY[automation.run('tn-hi')]);
SELECT count(automation.emit('tn.call', tenant => t)) FROM unnest('{a,c,NULL}'::text[]) AS t;
SELECT happened();
-- also by name from SQL
SELECT name FROM automation.define('tn-sql', trigger => automation.on_event('tn.sql'), steps => ARRAY[automation.sql('SELECT automation.start_run(''tn-hi'')')]);
SELECT count(automation.emit('tn.sql', tenant => t)) FROM unnest('{b,c,NULL}'::text[]) AS t;
SELECT happened();
-- without one that can be meant, a run of no tenant is told so
SELECT automation.drop_automation('tn-hi', tenant => '');
SELECT automation.emit('tn.call') > 0;
SELECT happened();
SELECT status, error, detail, hint FROM automation.runs WHERE automation = 'tn-calls' ORDER BY id DESC LIMIT 1;
SELECT notices FROM automation.define('tn-calls', trigger => automation.on_event('tn.call'), tenant => 'c', steps => ARRAY[automation.run('tn-hi')]);

-- automations of other roles neither answer to a name nor make it ambiguous
CREATE ROLE regress_tn_bob LOGIN;
SELECT automation.grant_usage('regress_tn_bob', 'author');
SET ROLE regress_tn_bob;
SELECT name FROM automation.define('tn-hi', trigger => automation.on_event('tn.go'), tenant => 'bob', steps => ARRAY[automation.sql('SELECT 1')]);
SELECT ok, applied FROM automation.pause('tn-hi');
SELECT automation.document('tn-hi', tenant => 'a');
SELECT * FROM automation.define('tn-hi', trigger => automation.on_call(), tenant => 'a', steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.drop_automation('tn-hi');
RESET ROLE;

-- the name is unique again
SELECT automation.drop_automation('tn-hi', tenant => 'b');
SELECT ok FROM automation.pause('tn-hi');
SELECT count(automation.drop_automation(name, tenant => coalesce(tenant, ''))) FROM automation.automations WHERE name LIKE 'tn-%';
SELECT automation.revoke_usage('regress_tn_bob');
DROP ROLE regress_tn_bob;
SET client_min_messages = warning;
DROP SCHEMA tn CASCADE;
