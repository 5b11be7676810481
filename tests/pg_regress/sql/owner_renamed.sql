-- ALTER ROLE ... RENAME changes nothing but the name that is shown: the oid decides whose an automation is. A role that was
-- dropped and created again under the same name is another one.
\set SHOW_CONTEXT never
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE ROLE regress_r_shop LOGIN;
SELECT automation.grant_usage('regress_r_shop', 'author');
CREATE SCHEMA renamed;
GRANT USAGE ON SCHEMA renamed TO regress_r_shop;
CREATE TABLE renamed.done (n int, by_role name DEFAULT current_user);
GRANT INSERT ON renamed.done TO regress_r_shop;
SELECT automation.allow_egress('regress_r_shop', 'hooks.example.com');
SET ROLE regress_r_shop;
SELECT automation.set_endpoint('r-hook', 'https://hooks.example.com/in');
SELECT name FROM automation.define('r-waits', trigger => automation.on_call(), steps => ARRAY[
    automation.wait_signal('r-go'), automation.sql($$ INSERT INTO renamed.done VALUES (({{ payload.n }})::int) $$)]);
SELECT automation.start_run('r-waits', payload => '{"n": 1}') > 0 AS started;
SELECT automation.drain() > 0 AS ran;
-- queued and not begun
SELECT automation.start_run('r-waits', payload => '{"n": 2}') > 0 AS started;
RESET ROLE;
ALTER ROLE regress_r_shop RENAME TO regress_r_store;
-- views show the present name, before housekeeping and after
SELECT name, status, owner FROM automation.automations WHERE name = 'r-waits';
SELECT name, owner FROM automation.endpoints WHERE name = 'r-hook';
SELECT role, host FROM automation.egress_rules WHERE host = 'hooks.example.com';
SELECT automation.sweep() > 0 AS waiting;
SELECT name, status, owner, disable_details FROM automation.automations WHERE name = 'r-waits';
SELECT owner_name FROM automation_internal.automation WHERE name = 'r-waits';
SELECT owner_name FROM automation_internal.endpoint WHERE name = 'r-hook';
SELECT role_name FROM automation_internal.egress_rule WHERE host = 'hooks.example.com';
SELECT status, count(*) FROM automation.runs WHERE automation = 'r-waits' GROUP BY status ORDER BY status;
SELECT automation.drain() > 0 AS ran;
SELECT count(automation.signal('r-go')) FROM generate_series(1, 2);
SELECT automation.drain() > 0 AS ran;
SELECT * FROM renamed.done ORDER BY n;
SELECT count(*) FROM automation.log WHERE code = 'owner_dropped';
-- dropped, and another role with the name that it had last: the automation stays with the one that is gone
SET ROLE regress_r_store;
SELECT automation.start_run('r-waits', payload => '{"n": 3}') > 0 AS started;
SELECT automation.drain() > 0 AS ran;
RESET ROLE;
DROP OWNED BY regress_r_store;
DROP ROLE regress_r_store;
CREATE ROLE regress_r_store LOGIN;
SELECT automation.grant_usage('regress_r_store', 'author');
SELECT automation.sweep() >= 0 AS swept;
SELECT name, status, owner, disable_details ->> 'reason' AS reason, disable_details ->> 'owner' AS was_of
  FROM automation.automations WHERE name = 'r-waits';
SELECT status, ended_reason, count(*) FROM automation.runs WHERE automation = 'r-waits' GROUP BY status, ended_reason ORDER BY status;
SELECT count(*) FROM automation.endpoints WHERE name = 'r-hook';
SET ROLE regress_r_store;
SELECT count(*) FROM automation.automations WHERE name = 'r-waits';
RESET ROLE;
SELECT automation.drop_automation('r-waits');
DELETE FROM automation_internal.log WHERE code = 'owner_dropped';
DROP SCHEMA renamed CASCADE;
DROP OWNED BY regress_r_store;
DROP ROLE regress_r_store;
