-- attack: stop all routing by route() in a transaction that stays open, unseen
-- attacker: adm, of the admin tier, who alone may call route()
-- must not happen: status() and the server's log say nothing of it
\i :attack_lib
SET SESSION AUTHORIZATION alice;
SELECT attack.refused('SELECT automation.route()', '42501');
SELECT attack.refused('SELECT automation.run_timers()', '42501');
CREATE TABLE alice.item (id int PRIMARY KEY);
SELECT automation.watch_table('alice.item');
SELECT automation.define('a-item', trigger => automation.on_created('item'), steps => ARRAY[automation.sql('SELECT 1')]);
RESET SESSION AUTHORIZATION;
\! psql -X -q -d "host=$PGHOST port=$PGPORT dbname=attack user=adm application_name=held_open" -c "BEGIN; SELECT automation.route(); SELECT pg_sleep(600)" >/dev/null 2>&1 &
SELECT attack.wait_for($$ SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'held_open' AND wait_event = 'PgSleep' $$);
INSERT INTO alice.item VALUES (1);
SELECT attack.wait_for($$ SELECT EXISTS (SELECT FROM automation.status() WHERE item = 'routing' AND status = 'held up') $$);
SELECT attack.held(s.detail LIKE '%process ' || a.pid || ' %', 'status() names the session')
  FROM automation.status() AS s, pg_stat_activity AS a WHERE s.item = 'routing' AND a.application_name = 'held_open';
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'held_open';
SELECT attack.wait_for($$ SELECT NOT EXISTS (SELECT FROM automation.status() WHERE item = 'routing') $$);
SELECT attack.held(true, 'and tells when it is over');
