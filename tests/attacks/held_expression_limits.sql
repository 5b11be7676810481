-- attack: exhaust stack or memory with an expression
-- attacker: mallory, an author
-- must not happen: a process crashes, or an expression without bounds is accepted
\i :attack_lib
SELECT pg_postmaster_start_time() AS started \gset
\c attack mallory
SET statement_timeout = '20s';
SELECT attack.refused(format('SELECT automation.evaluate(%L)', repeat('(', 100000) || '1' || repeat(')', 100000)), '54001');
SELECT attack.refused(format('SELECT automation.evaluate(%L)', repeat('not ', 60000) || 'true'), '%');
SELECT attack.refused(format('SELECT automation.evaluate(%L)', repeat('[', 33) || repeat(']', 33)), '54001');
SELECT attack.refused(format('SELECT automation.evaluate(%L)', repeat('1 + ', 100000) || '1'), '54001');
SELECT attack.refused($$SELECT automation.evaluate('range(1, 1000000000)')$$, '54000');
SELECT attack.refused($$SELECT automation.evaluate('pad_left(''a'', 1000000000)')$$, '54000');
SELECT attack.refused($$SELECT automation.evaluate('matches(''a'', ''(a{1000}){1000}'')')$$, '2201B');
SELECT attack.held(length(automation.evaluate('1e131071 + 1')::text) > 131000, 'a long number is exact');
\c attack postgres
SELECT attack.held(pg_postmaster_start_time() = :'started', 'the server has not restarted');
