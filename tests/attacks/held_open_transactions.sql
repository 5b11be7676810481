-- attack: hold the engine up with a transaction that stays open
-- attacker: mallory, an author, with an open writer and a snapshot that pins xmin
-- must not happen: alice's events are not routed while it is open
\i :attack_lib
\c attack mallory
CREATE TABLE mallory.t (id int PRIMARY KEY);
SELECT automation.watch_table('mallory.t', kind => 'm_t') IS NOT NULL AS watched;
\! psql -X -q -d "host=$PGHOST port=$PGPORT dbname=attack user=mallory" -c "BEGIN; INSERT INTO mallory.t VALUES (1); SELECT automation.emit('m.open'); SELECT pg_sleep(60)" >/dev/null 2>&1 &
\! psql -X -q -d "host=$PGHOST port=$PGPORT dbname=attack user=mallory" -c "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current(); SELECT pg_sleep(60)" >/dev/null 2>&1 &
\c attack postgres
SELECT attack.wait_for($$SELECT count(*) = 2 FROM pg_stat_activity WHERE usename = 'mallory' AND wait_event = 'PgSleep' AND backend_xid IS NOT NULL$$);
\c attack alice
CREATE TABLE alice.effect (n int);
SELECT automation.define('alices', trigger => automation.on_event('alice.calls'),
    steps => ARRAY[automation.sql($$ INSERT INTO alice.effect VALUES ({{ payload.n }}) $$)]) IS NOT NULL AS defined;
SELECT count(automation.emit('alice.calls', jsonb_build_object('n', n))) FROM generate_series(1, 10) AS n;
SELECT attack.wait_for('SELECT count(*) = 10 FROM alice.effect');
\c attack postgres
SELECT attack.held(count(*) = 2, 'both transactions were open all the time')
  FROM pg_stat_activity WHERE usename = 'mallory' AND wait_event = 'PgSleep';
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'mallory';
