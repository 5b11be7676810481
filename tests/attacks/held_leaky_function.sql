-- attack: see hidden rows of the views by a cheap function in WHERE that the planner would run first
-- attacker: viewer, with a function of cost 0.0001 that raises a notice with its argument
-- must not happen: the function is called with a row that the view does not show
\i :attack_lib
\c attack owner_a
CREATE TABLE owner_a.t (id int PRIMARY KEY, v text);
SELECT automation.watch_table('owner_a.t');
SELECT automation.define('a-secretive', trigger => automation.on_changed('t'), steps => ARRAY[automation.sql('SELECT ''CANARY'' AS v')]);
INSERT INTO owner_a.t VALUES (1, 'CANARY');
SELECT automation.start_run('a-secretive', '{"v": "CANARY"}');
SELECT attack.wait_for('SELECT count(*) = 2 FROM automation.runs WHERE status = ''completed''');
\c attack viewer
CREATE TABLE viewer.seen (said text);
CREATE FUNCTION viewer.leak(anyelement) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$
BEGIN INSERT INTO viewer.seen VALUES ($1::text); RETURN true; END $$;
CREATE FUNCTION viewer.leak_all() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE v name; n bigint; total bigint := 0;
BEGIN
    FOR v IN SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'automation'::regnamespace AND c.relkind = 'v' LOOP
        EXECUTE format('SELECT count(*) FROM automation.%I AS x WHERE viewer.leak(x::text)', v) INTO n;
        total := total + 1;
    END LOOP;
    RETURN total;
END $$;
SELECT attack.held(viewer.leak_all() >= 24, 'every view was asked');
SELECT attack.held(count(*) = 0, 'the function has seen nothing of owner_a''s') FROM viewer.seen WHERE said LIKE '%CANARY%' OR said LIKE '%secretive%' OR said LIKE '%owner_a%';
\c attack postgres
SELECT attack.held(count(*) = 0, 'each view is a security barrier') FROM pg_class
 WHERE relnamespace = 'automation'::regnamespace AND relkind = 'v' AND NOT coalesce('security_barrier=true' = ANY (reloptions), false);
