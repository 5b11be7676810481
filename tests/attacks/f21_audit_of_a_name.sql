-- attack: read another role's audit rows by taking the name of an automation that it has dropped
-- attacker: owner_b, who defines an automation of the same name
-- must not happen: owner_b reads what owner_a did with the automation that had the name before
\i :attack_lib
\c attack owner_a
CREATE TABLE owner_a.t (id int PRIMARY KEY);
INSERT INTO owner_a.t VALUES (4711);
SELECT automation.define('shared-name', trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT automation.backfill('shared-name', 'SELECT id FROM owner_a.t WHERE id = 4711');
SELECT attack.wait_for('SELECT count(*) = 1 FROM automation.progress WHERE finished_at IS NOT NULL');
SELECT automation.drop_automation('shared-name');
SELECT attack.held(count(*) >= 3, 'owner_a still sees its own acts') FROM automation.audit_log WHERE automation = 'shared-name';
\c attack owner_b
SELECT automation.define('shared-name', trigger => automation.on_call(), steps => ARRAY[automation.sql('SELECT 1')]);
SELECT attack.held(count(*) = 1, 'owner_b sees the own definition alone') FROM automation.audit_log WHERE automation = 'shared-name';
SELECT attack.held(count(*) = 0, 'and nothing of owner_a''s query') FROM automation.audit_log WHERE audit_log::text LIKE '%4711%';
SELECT attack.held(count(*) = 0, 'nor its runs, jobs, steps') FROM (
    SELECT r::text AS said FROM automation.runs AS r UNION ALL SELECT p::text FROM automation.progress AS p
    UNION ALL SELECT i::text FROM automation.bulk_items AS i UNION ALL SELECT s::text FROM automation.stat_automations AS s WHERE matched > 0) AS seen;
\c attack postgres
-- an act of a superuser on the automation is for its owner to see
SELECT automation.pause('shared-name');
\c attack owner_b
SELECT attack.held(count(*) = 1, 'the owner sees that a superuser paused it') FROM automation.audit_log WHERE automation = 'shared-name' AND action = 'automation.paused' AND role = 'postgres';
\c attack owner_a
SELECT attack.held(count(*) = 0, 'owner_a does not see what became of the name') FROM automation.audit_log WHERE action = 'automation.paused';
