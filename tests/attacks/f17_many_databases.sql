-- attack: use up the slots for databases, so that the engine works nowhere else
-- attacker: app, who may create databases and has no right in the engine
-- must not happen: a database with the extension, created after 66 others, has no conductor
\i :attack_lib
ALTER ROLE app CREATEDB;
\c attack app
SELECT format('CREATE DATABASE attack_crowd%s TEMPLATE template0', n) FROM generate_series(1, 66) AS n \gexec
\c attack postgres
-- the launcher looks at them now; a look leaves a transaction in the statistics of the database
SELECT automation.start_workers();
SELECT attack.wait_for($$ SELECT count(*) >= 60 FROM pg_stat_database WHERE datname LIKE 'attack\_crowd%' AND xact_commit > 0 $$, 60);
CREATE DATABASE attack_last;
\c attack_last
CREATE EXTENSION automation_engine;
\i :attack_lib
SELECT attack.wait_for('SELECT status = ''running'' FROM automation.status() WHERE item = ''conductor''');
SELECT attack.held(true, 'the last database has its conductor');
\c attack postgres
SELECT attack.wait_for('SELECT status = ''running'' FROM automation.status() WHERE item = ''conductor''');
SELECT attack.held(true, 'and so has the first');
DROP DATABASE attack_last;
SELECT format('DROP DATABASE attack_crowd%s', n) FROM generate_series(1, 66) AS n \gexec
