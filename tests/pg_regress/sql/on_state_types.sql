-- on_state compares as the column's type; a value that the column can never have is refused when it is defined.
\set VERBOSITY default
CREATE TABLE regress_door (id int PRIMARY KEY, locked boolean, floor int, opened date, name text);
SELECT automation.watch_table('regress_door');
SELECT name FROM automation.define('door-locked', trigger => automation.on_state('regress_door', 'locked', to_value => 'true'),
    steps => ARRAY[automation.set('{"x": 1}')]);
SELECT name FROM automation.define('door-not-open', trigger => automation.on_state('regress_door', 'locked', not_to => '{false}'),
    steps => ARRAY[automation.set('{"x": 1}')]);
SELECT name FROM automation.define('door-floor', trigger => automation.on_state('regress_door', 'floor', to_value => '2'),
    steps => ARRAY[automation.set('{"x": 1}')]);
INSERT INTO regress_door VALUES (1, false, 1, '2026-01-01', 'front');
SELECT automation.drain() >= 0 AS drained;
UPDATE regress_door SET locked = true, floor = 2;
SELECT automation.drain() > 0 AS drained;
UPDATE regress_door SET locked = false;
SELECT automation.drain() >= 0 AS drained;
SELECT automation, count(*) FROM automation.runs WHERE automation LIKE 'door-%' GROUP BY automation ORDER BY automation;

SELECT automation.define('door-bad', trigger => automation.on_state('regress_door', 'locked', to_value => 'open'),
    steps => ARRAY[automation.set('{"x": 1}')]);
SELECT automation.define('door-bad', trigger => automation.on_state('regress_door', 'floor', from_value => 'upper'),
    steps => ARRAY[automation.set('{"x": 1}')]);
SELECT automation.define('door-bad', trigger => automation.on_state('regress_door', 'opened', not_to => '{yesterday}'),
    steps => ARRAY[automation.set('{"x": 1}')]);

SELECT count(automation.drop_automation(name)) FROM automation.automations WHERE name LIKE 'door-%';
SELECT automation.unwatch_table('regress_door');
DROP TABLE regress_door;
