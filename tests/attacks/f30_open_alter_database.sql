-- attack: keep all workers away with an open ALTER DATABASE
-- attacker: tabowner, who owns the database
-- must not happen: the automation of another role does not run while that transaction is open
\i :attack_lib
ALTER DATABASE attack OWNER TO tabowner;
\c attack alice
SELECT automation.define('a-work', trigger => automation.on_event('a.go'), steps => ARRAY[automation.publish('a.gone', '{}')]);
\! psql -X -q -d "host=$PGHOST port=$PGPORT dbname=attack user=tabowner" -c "BEGIN" -c "ALTER DATABASE attack CONNECTION LIMIT 100" -c "SELECT pg_advisory_lock(30), pg_sleep(60)" >/dev/null 2>&1 &
\c attack postgres
SELECT attack.wait_for($$ SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 30 AND granted) $$);
SELECT pid AS conductor FROM automation.stat_workers WHERE worker = 'conductor' \gset
\c attack alice
SELECT automation.emit('a.go');
\c attack postgres
SELECT attack.wait_for($$ SELECT EXISTS (SELECT FROM automation.runs WHERE automation = 'a-work' AND status = 'completed') $$, 15);
SELECT attack.held(EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = 30 AND granted), 'that transaction is still open');
SELECT attack.held(pid = :conductor, 'the conductor has not left') FROM automation.stat_workers WHERE worker = 'conductor';
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'tabowner';
SELECT attack.wait_for($$ SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE usename = 'tabowner') $$);
ALTER DATABASE attack OWNER TO postgres;
