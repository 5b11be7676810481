-- attack: read the names of watched tables and of owners in status() and stat_workers
-- attacker: viewer, who has no right on the table and may not act for the owner
-- must not happen: a table that the viewer has no right on, or a role that it is no member of, is named
\i :attack_lib
\c attack owner_a
CREATE TABLE owner_a.merger_plans (id int PRIMARY KEY);
CREATE TABLE owner_a.shown (id int PRIMARY KEY);
GRANT USAGE ON SCHEMA owner_a TO viewer;
GRANT INSERT ON owner_a.shown TO viewer;
SELECT automation.watch_table('owner_a.merger_plans'), automation.watch_table('owner_a.shown');
SELECT automation.define('a-work', trigger => automation.on_call(), steps => ARRAY[automation.delay('1 hour')]);
SELECT automation.start_run('a-work');
SELECT attack.wait_for('SELECT count(*) = 1 FROM automation.stat_workers WHERE worker = ''executor'' AND owner = ''owner_a''');
SELECT attack.held(count(*) = 2, 'the owner sees its tables by name') FROM automation.status() WHERE item LIKE 'kind %';
\c attack viewer
SELECT attack.held(count(*) = 0, 'status() does not name the table') FROM automation.status() AS s WHERE s::text LIKE '%merger_plans%';
SELECT attack.held(detail = '1 watched tables you have no right on' AND status = 'captured', 'but counts it') FROM automation.status() WHERE item = 'other kinds';
SELECT attack.held(count(*) = 1, 'a table on which it has some right is named') FROM automation.status() WHERE item = 'kind shown';
SELECT attack.held(count(*) = 1 AND bool_and(owner IS NULL), 'the executor is listed without its owner') FROM automation.stat_workers WHERE worker = 'executor';
\c attack adm
SELECT attack.held(count(*) = 0, 'the admin tier alone names neither') FROM automation.status() AS s WHERE s::text LIKE '%merger_plans%';
SELECT attack.held(count(*) = 0, 'nor the owner') FROM automation.stat_workers WHERE owner IS NOT NULL;
\c attack postgres
GRANT pg_monitor TO viewer;
\c attack viewer
SELECT attack.held(count(*) = 1, 'a member of pg_monitor sees the names') FROM automation.status() WHERE item = 'kind merger_plans';
SELECT attack.held(count(*) = 1, 'and the owner') FROM automation.stat_workers WHERE owner = 'owner_a';
\c attack postgres
REVOKE pg_monitor FROM viewer;
ALTER TABLE owner_a.merger_plans DISABLE TRIGGER ALL;
\c attack viewer
SELECT attack.held(status = 'not captured' AND detail = '1 of 1 watched tables you have no right on', 'that one is not captured is told without its name') FROM automation.status() WHERE item = 'other kinds';
