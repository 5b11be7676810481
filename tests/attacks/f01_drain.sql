-- attack: superuser by a superuser's drain()
-- attacker: tabowner, a role without any right in the engine that owns a watched partitioned table
-- must not happen: the function behind the attacker's cast runs with the rights of the superuser who drains
\i :attack_lib
\ir recipes/moved_row.sql
SELECT automation.grant_usage('tabowner', 'author');
-- only drain() runs steps
SELECT automation.stop_workers();
SELECT attack.wait_for($$ SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'attack' AND backend_type LIKE 'automation_engine%' $$);
SET SESSION AUTHORIZATION tabowner;
SELECT automation.define('leave', trigger => automation.on_event('leave.now'), steps => ARRAY[automation.sql('UPDATE tabowner.p SET k = 2 WHERE k = 1')]);
SELECT automation.emit('leave.now');
RESET SESSION AUTHORIZATION;
SELECT attack.held(automation.drain() = 1, 'the attacker''s step was run');
SELECT attack.held(status = 'completed', 'the attacker''s run is completed') FROM automation.runs WHERE automation = 'leave';
\ir recipes/moved_row_check.sql
