-- attack: read a secret out of the server's log
-- attacker: a person who may read the log; owner_a mistypes a call of set_secret()
-- must not happen: the value stands in the log
\i :attack_lib
\c attack owner_a
SELECT attack.refused(format('SELECT automation.set_secret(%s)', call), '22%')
  FROM unnest(ARRAY[$$' bad name', 'canary-f26'$$, $$NULL, 'canary-f26'$$, $$'x', E'canary-f26\n'$$, $$'x', 'whsec_canary-f26'$$,
                    $$'x', 'canary-f26' || repeat('x', 5000)$$, $$'x', 'canary-f26', host => 'no host'$$]) AS call;
-- refused() catches errors before they are logged; these are not caught
\set ON_ERROR_STOP off
SELECT automation.set_secret(' bad name', 'canary-f26');
SELECT automation.set_secret('x', E'canary-f26\n');
SELECT automation.set_secret('x', 'whsec_canary-f26');
SELECT automation.set_secret('x', 'canary-f26', host => 'no host');
SELECT automation.set_secret('x', 'canary-f26', owner => 'owner_b');
DO $$ BEGIN PERFORM automation.set_secret(' bad name', 'canary-f26'); END $$;
\set ON_ERROR_STOP on
SELECT automation.set_secret('kept', 'canary-f26');
\c attack postgres
SELECT pg_read_file(current_setting('data_directory') || '/../log') AS log \gset
SELECT attack.held(:'log' LIKE '%invalid signing key%', 'the errors were logged');
SELECT attack.held(:'log' NOT LIKE '%canary-' || 'f26%', 'the value was not');
-- a file on the server needs the right to read such files
\c attack owner_a
SELECT attack.refused($$ SELECT automation.set_secret_from_file('x', '/etc/hostname') $$, '42501');
SELECT attack.refused($$ SELECT automation.set_secret_from_file('x', 'attacks_secrets.key') $$, '42501');
